// y = h f(z),  h = norm(x):   dz = dy h f'(z),  dh = dy f(z), then dx and parameters as for a norm
// y = norm(h),  h = x f(z):   dh and parameters as for a norm, then dx = dh f(z),  dz = dh x f'(z)
//
// For the gradients of a norm, see normalise.cpp. Only x, z and the moments of rows are kept; dx
// and dz are written over x and z if these have no other owner.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/normalise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;
namespace {

using normalise::Moments;

// f(v) and f'(v). e^-v may overflow to infinity, whose reciprocal is 0, as required.
template <class T>
struct GateAt {
  T value, slope;
};
struct SigmoidGate {
  template <class T>
  static GateAt<T> at(T v) {
    const T s = 1 / (1 + math::exp(-v));
    return {s, s * (1 - s)};
  }
};
struct SiluGate {
  template <class T>
  static GateAt<T> at(T v) {
    const T s = 1 / (1 + math::exp(-v));
    return {v * s, s * (1 + v * (1 - s))};
  }
};

// Calls loop(gate), which is compiled for each gate function; the code around it is not.
template <class F>
void with_gate(GateFunction function, F loop) {
  if (function == GateFunction::silu)
    loop(SiluGate{});
  else
    loop(SigmoidGate{});
}

// The gate, and the norm if `norms`, and whether it is applied to x f(z).
struct GatedRule {
  GateFunction function;
  Tensor w, b;
  double eps;
  bool norms, centred, last;
};

// Rows of n elements in one task, for use inside simd(). Groups of rows stay in the L1 cache.
template <class T>
struct GatedRows {
  static constexpr int64_t group = normalise::group;
  const T *x, *z, *w, *b;
  int64_t n;
  T eps;
  GateFunction function;
  bool norms, centred, last;

  GatedRows(const GatedRule& rule, const Tensor& x_, const Tensor& z_)
      : x(x_.data<T>()),
        z(z_.data<T>()),
        w(rule.w.data<T>()),
        b(rule.b.data<T>()),
        n(x_.size(-1)),
        eps(static_cast<T>(rule.eps)),
        function(rule.function),
        norms(rule.norms),
        centred(rule.centred),
        last(rule.last) {}

  void forward(int64_t begin, int64_t end, Moments<T>* moments, T* to) const {
    for (int64_t r = begin; r < end; r += group) {
      const int64_t some = std::min(group, end - r), size = some * n;
      const T *const from = x + r * n, *const logits = z + r * n;
      T* const y = to + r * n;
      Moments<T>* const s = moments + r;
      if (norms && !last) normalise::rows(from, some, n, eps, centred, w, b, s, y);
      const T* const h = norms && !last ? y : from;
      with_gate(function, [=](auto gate) {
#pragma GCC ivdep
        for (int64_t i = 0; i < size; ++i) y[i] = h[i] * gate.at(logits[i]).value;
      });
      if (!last) continue;
      normalise::moments_of(y, some, n, eps, centred, s);
      for (int64_t row = 0; row < some; ++row)
        kernels::row_accumulate(y + row * n, n, T{0}, [=, this, u = y + row * n](int64_t j) {
          return (u[j] - s[row].m) * s[row].r * w[j] + b[j];
        });
    }
  }

  // dx and dz may be x and z, or null. `memory` has room for memory_of_task() elements.
  int64_t memory_of_task() const { return 2 * group * n; }
  void backward(int64_t begin, int64_t count, const Moments<T>* moments, const T* dout, T* dx,
                T* dz, T* dw, T* db, T* memory) const {
    for (int64_t r = begin; r < begin + count; r += group) {
      const int64_t some = std::min(group, begin + count - r), size = some * n, at = r * n;
      const T *const from = x + at, *const logits = z + at, *const dy = dout + at;
      const Moments<T>* const s = moments + r;
      T *const h = memory, *const to_x = dx ? dx + at : h,
               *const to_z = dz ? dz + at : memory + group * n;
      with_gate(function, [=, this](auto gate) {
        if (last) {
          for (int64_t i = 0; i < size; ++i) h[i] = from[i] * gate.at(logits[i]).value;
          return;
        }
        for (int64_t row = 0; row < some; ++row) {
          const Moments<T> of = norms ? s[row] : Moments<T>{0, 1};
#pragma GCC ivdep
          for (int64_t j = 0, i = row * n; j < n; ++j, ++i) {
            const GateAt<T> g = gate.at(logits[i]);
            h[i] = dy[i] * g.value;
            to_z[i] = dy[i] * ((from[i] - of.m) * of.r * w[j] + b[j]) * g.slope;
          }
        }
      });
      // The norm of x f(z), in h, which dh replaces; or of x, with dh in h.
      T* const normed = last ? h : to_x;
      if (norms)
        normalise::rows_backward(last ? h : from, last ? dy : h, w, s, some, n, centred,
                                 last || dx ? normed : nullptr, T{0}, dw, db);
      else if (dx)
        std::copy_n(h, size, to_x);
      if (!last) continue;
      with_gate(function, [=](auto gate) {
#pragma GCC ivdep
        for (int64_t i = 0; i < size; ++i) {
          const GateAt<T> g = gate.at(logits[i]);
          const T dh = h[i], input = from[i];
          to_x[i] = dh * g.value;
          to_z[i] = dh * input * g.slope;
        }
      });
    }
  }
};

// Memory for the gradient of a captured tensor, if the slot needs one: the tensor itself if it has
// no other owner.
Tensor gradient_over(const GradSlot& slot, const Tensor& x) {
  if (!slot) return {};
  return x.unique() ? x : Tensor::empty_ordered(x.shape(), x.dtype(), x.strides());
}

}  // namespace

Variable gated(const Variable& x, const Variable& logits, const GatedOptions& options) {
  const NormOptions norm = options.norm.value_or(NormOptions{});
  if (!logits.defined())
    return options.norm ? normalise_rows("gated", x, norm.weight, norm.bias, norm.eps, norm.centred)
                        : x;
  check_float_pair("gated", x, logits);
  check<ShapeError>(x.rank() >= 1 && x.shape() == logits.shape(),
                    "gated: expected x and logits of one shape (…, n), got ", x.shape(), " and ",
                    logits.shape());
  check<ConfigError>(norm.eps >= 0, "gated: expected eps >= 0, got ", norm.eps);
  const bool norms = options.norm.has_value();
  const GatedRule rule{options.function,
                       norm_parameter("gated", x, norm.weight, 1),
                       norm_parameter("gated", x, norm.bias, 0),
                       norm.eps,
                       norms,
                       norm.centred,
                       norms && options.norm_last};
  const Tensor in = row_dense(x.value()), z = with_strides(logits.value(), in.strides());
  const int64_t n = in.size(-1), count = n ? in.numel() / n : 0;
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  Tensor moments = Tensor::empty({norms ? count : 0, 2}, in.dtype());
  dispatch_float(in.dtype(), [&]<class T>() {
    const GatedRows<T> rows(rule, in, z);
    auto* const s = reinterpret_cast<Moments<T>*>(moments.data<T>());
    parallel_for(count, rows_per_task(n), [&, to = out.data<T>()](int64_t begin, int64_t end) {
      simd([&] { rows.forward(begin, end, s, to); });
    });
  });
  return record(
      "gated", out, {x, logits, norm.weight, norm.bias},
      [x = in, z, rule, moments](const Tensor& grad_out, std::span<GradSlot> slots) mutable {
        const Tensor dout = with_strides(grad_out, x.strides());
        Tensor dx = gradient_over(slots[0], x), dz = gradient_over(slots[1], z);
        dispatch_float(x.dtype(), [&]<class T>() {
          const GatedRows<T> rows(rule, x, z);
          const auto* const s = reinterpret_cast<const Moments<T>*>(moments.data<T>());
          const T* const dy = dout.data<T>();
          T* const to_x = dx.defined() ? dx.data<T>() : nullptr;
          T* const to_z = dz.defined() ? dz.data<T>() : nullptr;
          normalise::sum_parameter_gradients<T>(
              rows.n ? x.numel() / rows.n : 0, rows.n, slots[2], slots[3], rows.memory_of_task(),
              [=](int64_t first, int64_t some, T* dw, T* db, T* memory) {
                rows.backward(first, some, s, dy, to_x, to_z, dw, db, memory);
              });
        });
        if (slots[0]) slots[0].take(dx);
        if (slots[1]) slots[1].take(dz);
      });
}

}  // namespace longhand
