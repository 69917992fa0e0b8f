// y = u + D(a Wᵀ + b),  a = D'(gelu(h)),  h = norm(x), where D, D' are dropouts and u is a residual
// (a is x without options)
//
//   du = dy,  dz = D(dy),  dW = dzᵀ a,  db = sum of dz over the rows,  da = dz W,
//   dh = da D'(gelu'(h)),  and dx and the gradients of the norm's parameters as in normalise.cpp
//
// All in blocks of rows that stay in the cache: neither h, a, z nor their gradients are ever
// written to memory, and x is all that is kept.
#include <algorithm>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/dropout_mask.h"
#include "longhand/autograd/ops/gelu.h"
#include "longhand/autograd/ops/normalise.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/gemm.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand {
namespace {

// A right factor (k, n) in the form that product() wants: panels, or rows for OpenBLAS.
template <class T>
Tensor right_factor(const Tensor& b) {
  if (!kernels::has_tile_kernels<T>()) return b.contiguous();
  const Tensor from = b.strides()[0] == 1 || b.strides()[1] == 1 ? b : b.contiguous();
  const int64_t k = b.size(0), n = b.size(1);
  Tensor packed = Tensor::empty({kernels::panels_size(k, n)}, b.dtype());
  constexpr int64_t width = kernels::panel_width;
  parallel_for((n + width - 1) / width, rows_per_task(width * (k + 1)),
               [&, data = from.data<T>(), to = packed.data<T>()](int64_t begin, int64_t end) {
                 kernels::pack_panels<T>(k, n, {data, from.strides()[0], from.strides()[1]}, 1,
                                         begin, end, to);
               });
  return packed;
}

// c = a b or, with `add`, c += a b, for a (m, k), of which one stride is 1, and c (m, n) in rows.
template <class T>
void product(int64_t m, int64_t n, int64_t k, kernels::Strided<T> a, const T* b, T* c, bool add) {
  if (kernels::has_tile_kernels<T>()) {
    kernels::gemm_panels<T>(m, n, k, a, b, c, n, add);
  } else {
    const bool rows = a.col == 1 && a.row >= k;
    gemm<T>(rows ? Trans::no : Trans::yes, Trans::no, 1,
            {a.data, rows ? m : k, rows ? k : m, rows ? a.row : a.col}, {b, k, n, n}, add ? 1 : 0,
            {c, m, n, n});
  }
}

// What stands before and behind the product.
struct Around {
  bool gelu;
  DropoutMask input, output;
  // Of the norm, undefined without one.
  Tensor norm_weight, norm_bias;
  double eps;
  bool centred;

  bool norms() const { return norm_weight.defined(); }
  bool activates() const { return gelu || input.on(); }

  // h = norm(x) for `count` rows of n numbers, and their moments s.
  template <class T>
  void normalise(const T* x, int64_t count, int64_t n, normalise::Moments<T>* s, T* h) const {
    simd([=, this, w = norm_weight.data<T>(), b = norm_bias.data<T>()] {
      normalise::rows(x, count, n, static_cast<T>(eps), centred, w, b, s, h);
    });
  }
  template <class T>
  void normalise_backward(const T* x, const T* dh, const normalise::Moments<T>* s, int64_t count,
                          int64_t n, T* dx, T beta, T* dw, T* db) const {
    simd([=, this, w = norm_weight.data<T>()] {
      normalise::rows_backward(x, dh, w, s, count, n, centred, dx, beta, dw, db);
    });
  }
};

// a = D'(gelu(h)) and, unless da is null, da = D'(gelu'(h)), for elements `first` … `first` + n - 1
// of h, of which h, a and da are the first.
template <class T>
void activate(const Around& around, int64_t first, int64_t n, const T* h, T* a, T* da) {
  const T s = static_cast<T>(around.input.scale());
  const auto run = [=](int64_t count, const T* from, T* y, T* dy, bool gelu, auto factor) {
    if (!gelu) {
      for (int64_t i = 0; i < count; ++i) y[i] = factor(i, from[i]);
      if (dy)
        for (int64_t i = 0; i < count; ++i) dy[i] = factor(i, T{1});
    } else if (!dy) {
      for (int64_t i = 0; i < count; ++i) y[i] = factor(i, from[i] * normal_cdf(from[i]));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const T v = from[i], phi = normal_cdf(v);
        y[i] = factor(i, v * phi);
        dy[i] = factor(i, phi + v * normal_density(v));
      }
    }
  };
  if (!around.input.on()) {
    simd([&] { run(n, h, a, da, around.gelu, [](int64_t, T v) { return v; }); });
    return;
  }
  around.input.for_pieces(first, n, [&](int64_t j, int64_t count, auto keep) {
    run(count, h + j, a + j, da ? da + j : nullptr, around.gelu, [=](int64_t i, T v) {
      const T kept = v * s;
      return keep(i) ? kept : T{0};
    });
  });
}

// y = D(z) + u for elements as in activate(); u may be null, and y may be z.
template <class T>
void drop_output(const DropoutMask& mask, int64_t first, int64_t n, const T* z, const T* u, T* y) {
  const T s = static_cast<T>(mask.scale());
  mask.for_pieces(first, n, [&](int64_t j, int64_t count, auto keep) {
    for (int64_t i = 0; i < count; ++i) {
      const T kept = z[j + i] * s;
      y[j + i] = keep(i) ? kept : T{0};
    }
    if (u)
      for (int64_t i = 0; i < count; ++i) y[j + i] += u[j + i];
  });
}

// y = u + bias for `count` rows, either may be null.
template <class T>
void start_rows(const T* u, const T* bias, T* y, int64_t count, int64_t width) {
  simd([&] {
    for (int64_t r = 0; r < count; ++r) {
      T* const to = y + r * width;
      if (bias)
        for (int64_t j = 0; j < width; ++j) to[j] = bias[j];
      else
        std::fill(to, to + width, T{0});
      if (u)
        for (int64_t j = 0; j < width; ++j) to[j] += u[r * width + j];
    }
  });
}

// Rows that are worked on at a time, of `width` numbers in all: they should stay in the second
// cache, and be many, since the gradient of the weight is read and written once for each block.
int64_t block_of(int64_t width) {
  return std::clamp<int64_t>(98304 / (width + 1) / 12 * 12, 48, 192);
}

template <class T>
void forward_rows(Rows<const T> x, const Tensor& weight, const T* bias, const T* u, Rows<T> y,
                  const Around& around) {
  const int64_t k = x.width, n = y.width, block = block_of(k + n);
  const Tensor factor = right_factor<T>(weight.transpose(0, 1));
  const T* const w = factor.data<T>();
  constexpr int64_t task = int64_t{1} << 22;  // multiplications, some 80 µs
  const int64_t grain = block * std::max<int64_t>(1, task / (block * (k + 1) * (n + 1)));
  parallel_for(y.count, grain, [&](int64_t begin, int64_t end) {
    const bool changes = around.norms() || around.activates();
    Tensor scratch = Tensor::empty({changes ? block * k : 0}, dtype_of<T>);
    std::vector<normalise::Moments<T>> moments(around.norms() ? block : 0);
    for (int64_t r = begin; r < end; r += block) {
      const int64_t count = std::min(block, end - r);
      const T* a = x[r];
      if (changes) {
        T* const to = scratch.data<T>();
        if (around.norms()) {
          around.normalise(a, count, k, moments.data(), to);
          a = to;
        }
        if (around.activates()) activate<T>(around, r * k, count * k, a, to, nullptr);
        a = to;
      }
      const T* const residual = u ? u + r * n : nullptr;
      const bool drops = around.output.on(), add = bias || (residual && !drops);
      if (add) start_rows(drops ? nullptr : residual, bias, y[r], count, n);
      product<T>(count, n, k, {a, k, 1}, w, y[r], add);
      if (drops) drop_output(around.output, r * n, count * n, y[r], residual, y[r]);
    }
  });
}

// Gradients that are wanted, the others null. All but dx are partial sums, one a task. dx may be x
// where something stands before the product.
template <class T>
struct Gradients {
  T *dx, *dw, *db;
  T *dnorm_weight, *dnorm_bias;  // both or none
  T beta;                        // of dx
};

// The number of tasks depends on the sizes alone, as it decides the order of sums; more than 16
// would make adding them up too dear.
int64_t rows_per_sum(int64_t rows, int64_t block) {
  const int64_t blocks = (rows + block - 1) / block;
  return std::max<int64_t>(1, (blocks + 15) / 16) * block;
}

template <class T>
void backward_rows(Rows<const T> x, const Tensor& weight, Rows<const T> dy, const Around& around,
                   Gradients<T> to) {
  const int64_t k = x.width, n = dy.width, block = block_of(k + n);
  const int64_t rows = std::max(x.count, dy.count);  // rows of no elements are not counted
  const bool to_input = to.dx || to.dnorm_weight;
  const Tensor factor = to_input ? right_factor<T>(weight) : Tensor();
  const bool active = around.activates(), norms = around.norms(), drops = around.output.on();
  const int64_t per_sum = rows_per_sum(rows, block);
  parallel_for(rows, per_sum, [&](int64_t begin, int64_t end) {
    const auto scratch = [](int64_t size) { return Tensor::empty({size}, dtype_of<T>); };
    Tensor z = scratch(drops ? block * n : 0), activated = scratch(active ? block * k : 0);
    Tensor slope = scratch(active ? block * k : 0), dactivated = scratch(active ? block * k : 0);
    Tensor normed = scratch(norms ? block * k : 0), dnormed = scratch(norms ? block * k : 0);
    std::vector<normalise::Moments<T>> moments(norms ? block : 0);
    const bool tiles = kernels::has_tile_kernels<T>();
    Tensor panels = scratch(to.dw && tiles ? kernels::panels_size(block, k) : 0);
    // The columns of dz are read along, which would fall on few sets of the first cache if n were a
    // power of two.
    const int64_t stride = (n + 15) / 16 * 16 + 16;
    Tensor padded = scratch(to.dw && tiles ? block * stride : 0);
    T* const dw = to.dw ? to.dw + begin / per_sum * n * k : nullptr;
    T* const db = to.db ? to.db + begin / per_sum * n : nullptr;
    T* const dnw = to.dnorm_weight ? to.dnorm_weight + begin / per_sum * k : nullptr;
    T* const dnb = to.dnorm_bias ? to.dnorm_bias + begin / per_sum * k : nullptr;
    for (T* const sum : {dnw, dnb})
      if (sum) std::fill(sum, sum + k, T{0});
    for (int64_t r = begin; r < end; r += block) {
      const int64_t count = std::min(block, end - r);
      const bool first = r == begin;
      const T *dz = dy[r], *a = x[r];
      if (drops) {
        drop_output<T>(around.output, r * n, count * n, dz, nullptr, z.data<T>());
        dz = std::as_const(z).data<T>();
      }
      if (norms) {
        around.normalise(a, count, k, moments.data(), normed.data<T>());
        a = std::as_const(normed).data<T>();
      }
      if (active) {
        activate<T>(around, r * k, count * k, a, activated.data<T>(),
                    to_input ? slope.data<T>() : nullptr);
        a = std::as_const(activated).data<T>();
      }
      if (to_input) {
        T* const dx = to.dx ? to.dx + r * k : nullptr;
        T* const dh = norms ? dnormed.data<T>() : dx;
        T* const da = active ? dactivated.data<T>() : dh;
        const T beta = norms ? T{0} : to.beta;
        product<T>(count, k, n, {dz, n, 1}, factor.data<T>(), da, !active && beta != 0);
        if (active)
          simd([&, slopes = std::as_const(slope).data<T>()] {
            kernels::row_accumulate(dh, count * k, beta,
                                    [=](int64_t i) { return da[i] * slopes[i]; });
          });
        if (norms)
          around.normalise_backward(x[r], dh, moments.data(), count, k, dx, to.beta, dnw, dnb);
      }
      kernels::Strided<T> columns{dz, 1, n};
      simd([&, to_rows = padded.data<T>()] {
        if (db && first) std::fill(db, db + n, T{0});
        for (int64_t i = 0; i < count; ++i) {
          const T* const row = dz + i * n;
          if (db) kernels::row_accumulate(db, n, T{1}, [row](int64_t j) { return row[j]; });
          if (dw && tiles) std::copy_n(row, n, to_rows + i * stride);
        }
      });
      if (dw) {
        if (tiles) {
          columns = {std::as_const(padded).data<T>(), 1, stride};
          constexpr int64_t width = kernels::panel_width;
          kernels::pack_panels<T>(count, k, {a, k, 1}, 1, 0, (k + width - 1) / width,
                                  panels.data<T>());
          a = std::as_const(panels).data<T>();
        }
        product<T>(n, k, count, columns, a, dw, !first);
      }
    }
  });
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                const LinearOptions& options) {
  check<ShapeError>(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1),
                    "linear: x ", x.shape(), " and weight ", weight.shape(), " do not multiply");
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "linear: bias ",
                    bias.shape(), " for weight ", weight.shape());
  check<ShapeError>(weight.dtype() == x.dtype() && (!bias.defined() || bias.dtype() == x.dtype()),
                    "linear: x of ", x.dtype(), ", weight of ", weight.dtype(), ", bias of ",
                    bias.dtype());
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  const Variable& residual = options.residual;
  check<ShapeError>(
      !residual.defined() || (residual.shape() == shape && residual.dtype() == x.dtype()),
      "linear: residual ", residual.shape(), " of ", residual.dtype(), " for a result ", shape,
      " of ", x.dtype());
  const NormOptions norm = options.norm.value_or(NormOptions{});
  check<ConfigError>(norm.eps >= 0, "linear: eps ", norm.eps, " of the norm is negative");
  const Around around{options.gelu,
                      {"linear", options.input},
                      {"linear", options.output},
                      options.norm ? norm_parameter("linear: norm", x, norm.weight, 1) : Tensor(),
                      options.norm ? norm_parameter("linear: norm", x, norm.bias, 0) : Tensor(),
                      norm.eps,
                      norm.centred};
  // Dropout goes by the row-major order.
  const bool drops = around.input.on() || around.output.on();
  const Tensor in = drops ? x.value().contiguous() : row_dense(x.value());
  Tensor out = empty_rows_like(in, weight.size(0));
  dispatch_float(in.dtype(), [&]<class T>() {
    const Tensor b = bias.defined() ? bias.value().contiguous() : Tensor();
    const Tensor u = residual.defined() ? with_strides(residual.value(), out.strides()) : Tensor();
    forward_rows<T>(rows<T>(in), weight.value(), b.defined() ? b.data<T>() : nullptr,
                    u.defined() ? u.data<T>() : nullptr, rows<T>(out), around);
  });
  return record("linear", out, {x, weight, bias, residual, norm.weight, norm.bias},
                [x = in, weight = weight.value(), around, strides = out.strides()](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
                  if (grad_in[3]) grad_in[3].take(grad_out);
                  const Tensor dy = with_strides(grad_out, strides);
                  dispatch_float(x.dtype(), [&]<class T>() {
                    const int64_t n = weight.size(0), k = weight.size(1);
                    const int64_t count = x.shape().without_axis(-1).numel();
                    const int64_t per_sum = rows_per_sum(count, block_of(k + n));
                    const int64_t sums = (count + per_sum - 1) / per_sum;
                    const bool norms = grad_in[4] || grad_in[5];
                    Tensor dw = Tensor::empty({grad_in[1] ? sums : 0, n, k}, x.dtype());
                    Tensor db = Tensor::empty({grad_in[2] ? sums : 0, n}, x.dtype());
                    Tensor dnorm = Tensor::empty({2, norms ? sums : 0, k}, x.dtype());
                    Gradients<T> to{nullptr,
                                    grad_in[1] ? dw.data<T>() : nullptr,
                                    grad_in[2] ? db.data<T>() : nullptr,
                                    norms ? dnorm.data<T>() : nullptr,
                                    norms ? dnorm.data<T>() + sums * k : nullptr,
                                    T{0}};
                    const auto run = [&] {
                      backward_rows<T>(rows<T>(std::as_const(x)), weight, rows<T>(dy), around, to);
                    };
                    const auto write = [&](Tensor& dx, double beta) {
                      to.dx = dx.data<T>();
                      to.beta = static_cast<T>(beta);
                      run();
                    };
                    if (grad_in[0]) {
                      if (around.activates() || around.norms())
                        accumulate_over(grad_in[0], x, write);
                      else
                        accumulate_with_strides(grad_in[0], x.strides(), write);
                    } else if (to.dw || to.db || norms) {
                      run();
                    }
                    if (grad_in[1])
                      accumulate_with_strides(grad_in[1], contiguous_strides(weight.shape()),
                                              [&](Tensor& grad, double beta) {
                                                kernels::sum_middle<T>(to.dw, 1, sums, n * k,
                                                                       grad.data<T>(), 1, beta);
                                              });
                    if (grad_in[2]) {
                      const GradSlot::Accumulator grad = grad_in[2].accumulate();
                      kernels::sum_middle<T>(to.db, 1, sums, n, grad.grad.data<T>(), 1, grad.beta);
                    }
                    for (const int i : {0, 1}) {
                      if (!grad_in[4 + i]) continue;
                      const GradSlot::Accumulator grad = grad_in[4 + i].accumulate();
                      kernels::sum_middle<T>(i == 0 ? to.dnorm_weight : to.dnorm_bias, 1, sums, k,
                                             grad.grad.data<T>(), 1, grad.beta);
                    }
                  });
                });
}

}  // namespace longhand
