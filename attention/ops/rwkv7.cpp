// Gradients of operands, with da, dκ the gradients of a and κ, and s = 1 / sqrt(|k ∘ ξ|² + eps):
//
//   dκ = a ∘ dkey + e^-g ∘ dread,   da = κ ∘ dkey + k ∘ α ∘ dwrite
//   dy = s (dκ - (κ·dκ) κ) for y = k ∘ ξ,   dk = ξ ∘ dy + (1 + (a - 1) ∘ α) ∘ dwrite
//   dξ = Σ k ∘ dy,   dα = Σ k ∘ (a - 1) ∘ dwrite, over tokens
//   dw = σ'(w) ∘ (-e^(-1/2)) (dg - κ ∘ e^-g ∘ dread),   dz = σ'(z) ∘ da
//
// and of the result, with y = out / gate, n = norm(o) before weight and bias, r = 1 / sqrt(variance + eps):
//
//   dgate = y ∘ dout,   dy = gate ∘ dout,   dv = (q · (ρ ∘ write)) dy
//   dq = (v·dy) ρ ∘ write,   dwrite = (v·dy) ρ ∘ q,   dρ = Σ (v·dy) q ∘ write
//   dn = weight ∘ dy,   do = r (dn - mean dn - n mean (n ∘ dn)),   dweight = Σ n ∘ dy,   dbias = Σ dy
#include "longhand/attention/ops/rwkv7.h"

#include <array>
#include <cmath>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/reduce.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

const double fastest = std::exp(-0.5);  // -g is at most this

// 1 / sqrt(|k ∘ ξ|² + eps). Inside simd().
template <class T>
T scale_of(const T* k, const T* xi, int64_t D, T eps) {
  const T squares = kernels::lane_sum<T>(D, [=](int64_t l) { return k[l] * xi[l] * k[l] * xi[l]; });
  return 1 / std::sqrt(squares + eps);
}

// Tokens per task, depending on their size.
int64_t tokens_of_task(int64_t width) {
  return std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(1, width));
}

int64_t tasks_of(const Shape& shape) {
  const int64_t grain = tokens_of_task(shape[2] * shape[3]);
  return (shape[0] * shape[1] + grain - 1) / grain;
}
// (H, D) of (tasks, H, D)
Tensor sum_of_tasks(const Tensor& x) {
  Tensor out = Tensor::empty({1, x.size(1), x.size(2)}, x.dtype());
  kernels::sum_axes_into(out, x, {0});
  return out.squeeze(0);
}

Variable checked_operand(const char* op, const char* name, const Variable& x, const Shape& shape,
                         DType dtype) {
  check<ShapeError>(x.shape() == shape && x.dtype() == dtype && is_float(dtype), op, ": expected ",
                    name, " of shape ", shape, " and one float dtype, ", dtype, ", got ", x.shape(),
                    " of ", x.dtype());
  return contiguous(x);
}

struct Tensors {
  Tensor k, decay, rate, removal, replacement;
};

template <class T>
void forward(const Tensors& in, T eps, Tensor& log_decay, Tensor& key, Tensor& read,
             Tensor& write) {
  const int64_t H = in.k.size(2), D = in.k.size(3);
  parallel_for(in.k.size(0) * in.k.size(1), tokens_of_task(H * D), [&](int64_t begin, int64_t end) {
    simd([=, c = static_cast<T>(fastest), k = in.k.data<T>(), w = in.decay.data<T>(),
          z = in.rate.data<T>(), xis = in.removal.data<T>(), alphas = in.replacement.data<T>(),
          to_g = log_decay.data<T>(), to_key = key.data<T>(), to_read = read.data<T>(),
          to_write = write.data<T>()] {
      for (int64_t row = begin * H; row < end * H; ++row) {
        const int64_t first = row * D;
        const T *const xi = xis + row % H * D, *const alpha = alphas + row % H * D;
        const T s = scale_of(k + first, xi, D, eps);
#pragma GCC ivdep
        for (int64_t l = 0; l < D; ++l) {
          const int64_t at = first + l;
          const T g = -c / (1 + math::exp(-w[at])), a = 1 / (1 + math::exp(-z[at]));
          const T removed = k[at] * xi[l] * s;
          to_g[at] = g;
          to_key[at] = a * removed;
          to_read[at] = removed * math::exp(-g);
          to_write[at] = k[at] * (1 + (a - 1) * alpha[l]);
        }
      }
    });
  });
}

// The gradients of the results, contiguous.
struct Given {
  Tensor log_decay, key, read, write;
};

// The gradients of `removal` and `replacement`, per task of tokens: (tasks, H, D).
template <class T>
void backward(const Tensors& in, const Tensor& log_decay, T eps, const Given& d, Tensors& to) {
  const int64_t H = in.k.size(2), D = in.k.size(3), grain = tokens_of_task(H * D);
  Tensor scratch = Tensor::empty({to.removal.size(0), 2, D}, in.k.dtype());
  parallel_for(in.k.size(0) * in.k.size(1), grain, [&](int64_t begin, int64_t end) {
    const int64_t task = begin / grain;
    simd([=, c = static_cast<T>(fastest), k = in.k.data<T>(), z = in.rate.data<T>(),
          xis = in.removal.data<T>(), alphas = in.replacement.data<T>(), g = log_decay.data<T>(),
          dg = d.log_decay.data<T>(), dkey = d.key.data<T>(), dread = d.read.data<T>(),
          dwrite = d.write.data<T>(), dk = to.k.data<T>(), dw = to.decay.data<T>(),
          dz = to.rate.data<T>(), dxis = to.removal.data<T>() + task * H * D,
          dalphas = to.replacement.data<T>() + task * H * D,
          dremoved = scratch.data<T>() + task * 2 * D] {
      T* const removed = dremoved + D;
      std::fill_n(dxis, H * D, T{0});
      std::fill_n(dalphas, H * D, T{0});
      for (int64_t row = begin * H; row < end * H; ++row) {
        const int64_t first = row * D, head = row % H * D;
        const T *const xi = xis + head, *const alpha = alphas + head;
        T *const dxi = dxis + head, *const dalpha = dalphas + head;
        const T s = scale_of(k + first, xi, D, eps);
#pragma GCC ivdep
        for (int64_t l = 0; l < D; ++l) {
          const int64_t at = first + l;
          const T a = 1 / (1 + math::exp(-z[at])), rise = math::exp(-g[at]), of_w = -g[at] / c;
          removed[l] = k[at] * xi[l] * s;
          dremoved[l] = a * dkey[at] + rise * dread[at];
          dz[at] = a * (1 - a) * (removed[l] * dkey[at] + k[at] * alpha[l] * dwrite[at]);
          dw[at] = -c * of_w * (1 - of_w) * (dg[at] - removed[l] * rise * dread[at]);
          dk[at] = (1 + (a - 1) * alpha[l]) * dwrite[at];
          dalpha[l] += k[at] * (a - 1) * dwrite[at];
        }
        const T along = kernels::row_dot(removed, dremoved, D);
#pragma GCC ivdep
        for (int64_t l = 0; l < D; ++l) {
          const T dy = s * (dremoved[l] - along * removed[l]);
          dk[first + l] += xi[l] * dy;
          dxi[l] += k[first + l] * dy;
        }
      }
    });
  });
}

}  // namespace

DeltaInputs rwkv7_operands(const Rwkv7Keys& inputs, double eps) {
  check<ShapeError>(inputs.k.rank() == 4, "rwkv7_operands: expected k (B, N, H, D), got ",
                    inputs.k.shape());
  const Shape &ks = inputs.k.shape(), head{ks[2], ks[3]};
  const DType dtype = inputs.k.dtype();
  const auto checked = [&](const char* name, const Variable& x, const Shape& shape) {
    return checked_operand("rwkv7_operands", name, x, shape, dtype);
  };
  const Variables operands{checked("k", inputs.k, ks), checked("decay", inputs.decay, ks),
                           checked("rate", inputs.rate, ks),
                           checked("removal", inputs.removal, head),
                           checked("replacement", inputs.replacement, head)};
  const Tensors in{operands[0].value(), operands[1].value(), operands[2].value(),
                   operands[3].value(), operands[4].value()};
  const auto empty = [&] { return Tensor::empty(ks, dtype); };
  Tensor log_decay = empty(), key = empty(), read = empty(), write = empty();
  dispatch_float(
      dtype, [&]<class T>() { forward<T>(in, static_cast<T>(eps), log_decay, key, read, write); });
  const Variables results =
      record_all("rwkv7_operands", {log_decay, key, read, write}, operands,
                 [in = Tensors{in.k, {}, in.rate, in.removal, in.replacement}, log_decay, eps](
                     std::span<const Tensor> d, std::span<GradSlot> slots) {
                   const Shape& shape = in.k.shape();
                   const auto of_tokens = [&] { return Tensor::empty(shape, in.k.dtype()); };
                   const auto of_tasks = [&] {
                     return Tensor::empty({tasks_of(shape), shape[2], shape[3]}, in.k.dtype());
                   };
                   Tensors to{of_tokens(), of_tokens(), of_tokens(), of_tasks(), of_tasks()};
                   const Given given{d[0].contiguous(), d[1].contiguous(), d[2].contiguous(),
                                     d[3].contiguous()};
                   dispatch_float(in.k.dtype(), [&]<class T>() {
                     backward<T>(in, log_decay, static_cast<T>(eps), given, to);
                   });
                   const Tensor gradients[] = {to.k, to.decay, to.rate, sum_of_tasks(to.removal),
                                               sum_of_tasks(to.replacement)};
                   for (size_t i = 0; i < slots.size(); ++i)
                     if (slots[i]) slots[i].take(gradients[i]);
                 });
  DeltaInputs out;
  out.log_decay = results[0], out.k = results[1], out.read = results[2], out.write = results[3];
  return out;
}

namespace {

// One per operand of Rwkv7Reads, in its order.
enum { of_reads, of_q, of_write, of_v, of_gate, of_weight, of_bias, of_bonus, inputs_of_result };
constexpr const char* result_names[] = {"reads", "q",      "write", "v",
                                        "gate",  "weight", "bias",  "bonus"};
using ResultTensors = std::array<Tensor, inputs_of_result>;

// The same for one head of a token; null: undefined. For use inside simd().
template <class T>
struct ResultRow {
  const T* x[inputs_of_result];
  int64_t D;
  T eps, mean = 0, inverse = 1, agreement = 0;

  ResultRow(const std::array<const T*, inputs_of_result>& all, int64_t row, int64_t H, int64_t D_,
            T eps_)
      : D(D_), eps(eps_) {
    for (int i = 0; i < inputs_of_result; ++i)
      x[i] = all[i] ? all[i] + (i < of_weight ? row : row % H) * D : nullptr;
    const auto sum = [&](auto f) { return kernels::lane_sum<T>(D, f); };
    if (x[of_weight]) {
      const T width = static_cast<T>(D);
      mean = sum([o = x[of_reads]](int64_t l) { return o[l]; }) / width;
      inverse = 1 / std::sqrt(sum([o = x[of_reads], m = mean](int64_t l) {
                                return (o[l] - m) * (o[l] - m);
                              }) / width +
                              eps);
    }
    if (x[of_bonus])
      agreement = sum([q = x[of_q], u = x[of_write], rho = x[of_bonus]](int64_t l) {
        return q[l] * u[l] * rho[l];
      });
  }
  // y: the result before its gate
  void ungated(T* to) const {
    const T *const o = x[of_reads], *const w = x[of_weight], *const b = x[of_bias],
                   *const v = x[of_v];
    if (w)
      for (int64_t l = 0; l < D; ++l) to[l] = (o[l] - mean) * inverse * w[l] + b[l];
    else
      std::copy_n(o, D, to);
    if (v)
      for (int64_t l = 0; l < D; ++l) to[l] += agreement * v[l];
  }
  // Computes all gradients from dout into rows of memory; adds those of parameters. dy: D elements
  void gradients(const T* dout, T* const (&to)[inputs_of_result], T* dy) const {
    std::copy_n(dout, D, dy);
    if (const T* const gate = x[of_gate]) {
      ungated(dy);
      for (int64_t l = 0; l < D; ++l) to[of_gate][l] = dy[l] * dout[l];
      for (int64_t l = 0; l < D; ++l) dy[l] = gate[l] * dout[l];
    }
    if (const T* const rho = x[of_bonus]) {
      const T *const q = x[of_q], *const u = x[of_write];
      const T d = kernels::row_dot(x[of_v], dy, D);
#pragma GCC ivdep
      for (int64_t l = 0; l < D; ++l) {
        to[of_v][l] = agreement * dy[l];
        to[of_q][l] = d * rho[l] * u[l];
        to[of_write][l] = d * rho[l] * q[l];
        to[of_bonus][l] += d * q[l] * u[l];
      }
    }
    T* const d_reads = to[of_reads];
    if (!x[of_weight]) {
      std::copy_n(dy, D, d_reads);
      return;
    }
    const T *const o = x[of_reads], *const w = x[of_weight], width = static_cast<T>(D);
#pragma GCC ivdep
    for (int64_t l = 0; l < D; ++l) {
      d_reads[l] = (o[l] - mean) * inverse;  // n
      to[of_weight][l] += d_reads[l] * dy[l];
      to[of_bias][l] += dy[l];
      dy[l] *= w[l];
    }
    const T level = kernels::row_sum(dy, D) / width,
            along = kernels::row_dot(d_reads, dy, D) / width;
    for (int64_t l = 0; l < D; ++l) d_reads[l] = inverse * (dy[l] - level - d_reads[l] * along);
  }
};

template <class T>
std::array<const T*, inputs_of_result> numbers_of(const ResultTensors& in) {
  std::array<const T*, inputs_of_result> out;
  for (int i = 0; i < inputs_of_result; ++i) out[i] = tile::data_or_null<T>(in[i]);
  return out;
}

}  // namespace

Variable rwkv7_result(const Rwkv7Reads& inputs, double eps) {
  const Shape& shape = inputs.reads.shape();
  check<ShapeError>(shape.rank() == 4, "rwkv7_result: expected reads (B, N, H, D), got ", shape);
  const Variable all[] = {inputs.reads, inputs.q,      inputs.write, inputs.v,
                          inputs.gate,  inputs.weight, inputs.bias,  inputs.bonus};
  check<ShapeError>(inputs.q.defined() == inputs.bonus.defined() &&
                        inputs.write.defined() == inputs.bonus.defined() &&
                        inputs.v.defined() == inputs.bonus.defined() &&
                        inputs.weight.defined() == inputs.bias.defined(),
                    "rwkv7_result: expected q, write, v and bonus, or none of them, and weight and "
                    "bias, or neither");
  const DType dtype = inputs.reads.dtype();
  Variables operands;
  ResultTensors in;
  for (int i = 0; i < inputs_of_result; ++i) {
    if (!all[i].defined()) continue;
    operands.push_back(checked_operand("rwkv7_result", result_names[i], all[i],
                                       i < of_weight ? shape : Shape{shape[2], shape[3]}, dtype));
    in[i] = operands.back().value();
  }
  const int64_t H = shape[2], D = shape[3], tokens = shape[0] * shape[1],
                grain = tokens_of_task(H * D);
  Tensor out = Tensor::empty(shape, dtype);
  dispatch_float(dtype, [&]<class T>() {
    parallel_for(tokens, grain, [&, of = numbers_of<T>(in)](int64_t begin, int64_t end) {
      simd([=, to = out.data<T>()] {
        for (int64_t row = begin * H; row < end * H; ++row) {
          const ResultRow<T> x(of, row, H, D, static_cast<T>(eps));
          x.ungated(to + row * D);
          if (const T* const gate = x.x[of_gate])
            for (int64_t l = 0; l < D; ++l) to[row * D + l] *= gate[l];
        }
      });
    });
  });
  return record(
      "rwkv7_result", out, operands,
      [=, shape = shape](const Tensor& dout, std::span<GradSlot> slots) {
        const Tensor d = dout.contiguous();
        const int64_t tasks = tasks_of(shape);
        Tensor rows = Tensor::empty({tasks, D}, dtype);
        ResultTensors to;
        for (int i = 0; i < inputs_of_result; ++i)
          if (in[i].defined())
            to[i] =
                i < of_weight ? Tensor::empty(shape, dtype) : Tensor::zeros({tasks, H, D}, dtype);
        dispatch_float(dtype, [&]<class T>() {
          std::array<T*, inputs_of_result> all_to;
          for (int i = 0; i < inputs_of_result; ++i) all_to[i] = tile::data_or_null<T>(to[i]);
          parallel_for(tokens, grain, [&, of = numbers_of<T>(in)](int64_t begin, int64_t end) {
            simd([=, from = d.data<T>(), dy = rows.data<T>() + begin / grain * D] {
              for (int64_t row = begin * H; row < end * H; ++row) {
                T* dx[inputs_of_result];
                for (int i = 0; i < inputs_of_result; ++i)
                  dx[i] = all_to[i]
                              ? all_to[i] + (i < of_weight ? row : begin / grain * H + row % H) * D
                              : nullptr;
                ResultRow<T>(of, row, H, D, static_cast<T>(eps)).gradients(from + row * D, dx, dy);
              }
            });
          });
        });
        for (size_t i = 0, place = 0; i < inputs_of_result; ++i)
          if (in[i].defined())
            if (GradSlot& slot = slots[place++])
              slot.take(i < of_weight ? to[i] : sum_of_tasks(to[i]));
      });
}

}  // namespace longhand::attention
