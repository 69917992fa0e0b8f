// loss = 1/z sum over rows r of l_r,  l = log sum e^x_j - sum q_j x_j,  q_j = (1 - e) [j = t] + e/C
// dx_j = dloss / z (p_j - q_j),  p = softmax x
#include <cmath>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/dry_run.h"

namespace longhand {
using namespace ops;
namespace {

// p_j = e^(x_j - max) scale: only two values per row are kept for the backward pass.
template <class T>
struct RowStats {
  T max, scale;
};

template <class T>
struct RowLoss {
  RowStats<T> stats;
  double loss;
};

template <class T>
RowLoss<T> loss_row(const T* x, int64_t n, int32_t target, double smoothing) {
  constexpr int64_t piece = 512;
  T exps[piece];
  const T m = kernels::row_max(x, n);
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += piece)
    sum += static_cast<double>(kernels::exp_row(x + begin, exps, std::min(piece, n - begin), m));
  // Relative to the maximum, which cancels, since the sum of q is 1.
  double expected = static_cast<double>(x[target] - m);
  if (smoothing != 0) {
    const double shifted = kernels::lane_sum<T>(n, [=](int64_t j) { return x[j] - m; });
    expected = (1 - smoothing) * expected + smoothing / static_cast<double>(n) * shifted;
  }
  return {{m, static_cast<T>(1 / sum)}, std::log(sum) - expected};
}

// dx may be x.
template <class T>
void gradient_row(const T* x, int64_t n, int32_t target, RowStats<T> s, double smoothing, double g,
                  T* dx, T beta) {
  const T scale = s.scale, m = s.max, uniform = static_cast<T>(smoothing / static_cast<double>(n));
  const T factor = static_cast<T>(g);
  const auto of = [=](T v) { return factor * (math::exp(v - m) * scale - uniform); };
  if (dx == x)  // a single pointer, so that the loop can be vectorised
    for (int64_t j = 0; j < n; ++j) dx[j] = of(dx[j]);
  else
    kernels::row_accumulate(dx, n, beta, [=](int64_t j) { return of(x[j]); });
  dx[target] -= static_cast<T>(g * (1 - smoothing));
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options) {
  check_float("cross_entropy", logits);
  check<ShapeError>(logits.rank() >= 1,
                    "cross_entropy: expected logits (…, classes), got a scalar");
  check<ShapeError>(targets.defined() && targets.dtype() == DType::i32 &&
                        targets.shape() == logits.shape().without_axis(-1),
                    "cross_entropy: expected targets ", logits.shape().without_axis(-1),
                    " of i32 for logits ", logits.shape(), ", got ", targets.shape(), " of ",
                    targets.dtype());
  const double smoothing = options.label_smoothing;
  check<ConfigError>(0 <= smoothing && smoothing <= 1,
                     "cross_entropy: expected label_smoothing in [0, 1], got ", smoothing);
  check<ConfigError>(!options.normalizer || *options.normalizer > 0,
                     "cross_entropy: expected a positive normalizer, got ",
                     options.normalizer.value_or(0));

  const int64_t classes = logits.size(-1), count = targets.numel();
  const int32_t ignore = options.ignore_index;
  const Tensor checked = targets.contiguous();
  const int32_t* const t = checked.data<int32_t>();
  int64_t counted = 0;
  for (int64_t i = 0; !is_dry() && i < count; ++i) {
    if (t[i] == ignore) continue;
    ++counted;
    check<ShapeError>(0 <= t[i] && t[i] < classes, "cross_entropy: target ", t[i], " at position ",
                      i, " of ", targets.shape(), " is out of range for ", classes, " classes");
  }
  const double divisor =
      options.normalizer.value_or(static_cast<double>(std::max<int64_t>(1, counted)));

  const Tensor in = row_dense(logits.value());
  // In the memory order of the rows.
  Tensor target = Tensor::empty_ordered(targets.shape(), DType::i32, in.strides().without_axis(-1));
  copy_into(target, targets);
  Tensor stats = Tensor::empty({count, 2}, in.dtype());
  const double sum = dispatch_float(in.dtype(), [&]<class T>() {
    const auto x = rows<T>(in);
    const int32_t* const at = std::as_const(target).data<int32_t>();
    auto* const s = reinterpret_cast<RowStats<T>*>(stats.data<T>());
    return parallel_sum<double>(count, rows_per_task(classes), [&](int64_t begin, int64_t end) {
      double part = 0;
      simd([&] {
        for (int64_t r = begin; r < end; ++r) {
          if (at[r] == ignore) continue;
          const RowLoss<T> row = loss_row(x[r], classes, at[r], smoothing);
          s[r] = row.stats;
          part += row.loss;
        }
      });
      return part;
    });
  });
  return record(
      "cross_entropy", Tensor::scalar(sum / divisor, in.dtype()), {logits},
      [x = in, target, stats, divisor, smoothing, ignore](const Tensor& grad_out,
                                                          std::span<GradSlot> grad_in) mutable {
        const double g = grad_out.item() / divisor;
        accumulate_over(grad_in[0], x, [&](Tensor& grad, double beta) {
          dispatch_float(x.dtype(), [&]<class T>() {
            const auto from = rows<T>(std::as_const(x));
            const auto dx = rows<T>(grad);
            const auto* const s =
                reinterpret_cast<const RowStats<T>*>(std::as_const(stats).data<T>());
            for_rows(dx.count, dx.width,
                     [=, at = std::as_const(target).data<int32_t>(),
                      b = static_cast<T>(beta)](int64_t r) {
                       if (at[r] == ignore)
                         kernels::row_accumulate(dx[r], dx.width, b, [](int64_t) { return T{0}; });
                       else
                         gradient_row(from[r], dx.width, at[r], s[r], smoothing, g, dx[r], b);
                     });
          });
        });
      });
}

}  // namespace longhand
