// loss = t²/z sum over rows r of l_r,  l = sum q_j (log q_j - log p_j),  p = softmax(x / t),
//                                                                        q = softmax(y / t)
// dx_j = dloss t / z (p_j - q_j)
#include <cmath>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/dry_run.h"

namespace longhand {
using namespace ops;
namespace {

// softmax(x / t)_j = e^((x_j - max) / t) / sum: only two values per row are kept for the backward
// pass.
template <class T>
struct SoftmaxStats {
  T max, sum;
};

template <class T>
SoftmaxStats<T> stats_of(const T* x, int64_t n, T inverse) {
  const T m = kernels::row_max(x, n);
  return {m, kernels::lane_sum<T>(n, [=](int64_t j) { return math::exp((x[j] - m) * inverse); })};
}

// Exactly 0 for equal rows.
template <class T>
double divergence(const T* x, SoftmaxStats<T> p, const T* y, SoftmaxStats<T> q, int64_t n,
                  T inverse) {
  const T difference = kernels::lane_sum<T>(n, [=](int64_t j) {
    const T of_y = y[j] - q.max;
    return math::exp(of_y * inverse) * (of_y - (x[j] - p.max));
  });
  return static_cast<double>(difference * inverse / q.sum) + std::log(static_cast<double>(p.sum)) -
         std::log(static_cast<double>(q.sum));
}

// dx may be x.
template <class T>
void gradient_row(const T* x, SoftmaxStats<T> p, const T* y, SoftmaxStats<T> q, int64_t n,
                  T inverse, T factor, T* dx, T beta) {
  const auto of = [=](T a, T b) {
    return factor *
           (math::exp((a - p.max) * inverse) / p.sum - math::exp((b - q.max) * inverse) / q.sum);
  };
  if (dx == x)
    for (int64_t j = 0; j < n; ++j) dx[j] = of(dx[j], y[j]);
  else
    kernels::row_accumulate(dx, n, beta, [=](int64_t j) { return of(x[j], y[j]); });
}

}  // namespace

Variable kl_divergence(const Variable& logits, const Tensor& teacher,
                       const KlDivergenceOptions& options) {
  check<ShapeError>(logits.rank() >= 1,
                    "kl_divergence: expected logits (…, classes), got a scalar");
  check<ShapeError>(
      teacher.defined() && teacher.shape() == logits.shape() && teacher.dtype() == logits.dtype(),
      "kl_divergence: expected logits of the teacher of shape ", logits.shape(), " and ",
      logits.dtype(), ", as those of the student, got ", teacher.shape(), " of ", teacher.dtype());
  const Shape rows_shape = logits.shape().without_axis(-1);
  check<ShapeError>(
      !options.targets.defined() ||
          (options.targets.dtype() == DType::i32 && options.targets.shape() == rows_shape),
      "kl_divergence: expected targets ", rows_shape, " of i32 for logits ", logits.shape(),
      ", got ", options.targets.shape(), " of ", options.targets.dtype());
  check<ConfigError>(options.temperature > 0, "kl_divergence: expected a temperature above 0, got ",
                     options.temperature);
  check<ConfigError>(!options.normalizer || *options.normalizer > 0,
                     "kl_divergence: expected a positive normalizer, got ",
                     options.normalizer.value_or(0));

  const int64_t classes = logits.size(-1);
  const Tensor in = row_dense(logits.value());
  const Tensor other = with_strides_of(teacher, in);
  // 1 where a row counts, in the memory order of the rows.
  Tensor counts = Tensor::empty_ordered(rows_shape, DType::i32, in.strides().without_axis(-1));
  if (options.targets.defined())
    copy_into(counts, options.targets);
  else
    counts.fill(options.ignore_index == 0 ? 1 : 0);
  const int64_t count = counts.numel();
  int32_t* const c = counts.data<int32_t>();
  int64_t counted = 0;
  for (int64_t r = 0; !is_dry() && r < count; ++r) counted += c[r] = c[r] != options.ignore_index;
  const double t = options.temperature;
  const double divisor =
      options.normalizer.value_or(static_cast<double>(std::max<int64_t>(1, counted)));

  Tensor stats = Tensor::empty({count, 4}, in.dtype());  // of x, of y
  const double sum = dispatch_float(in.dtype(), [&]<class T>() {
    const auto x = rows<T>(in), y = rows<T>(other);
    const T inverse = static_cast<T>(1 / t);
    auto* const s = reinterpret_cast<SoftmaxStats<T>*>(stats.data<T>());
    return parallel_sum<double>(count, rows_per_task(classes), [&](int64_t begin, int64_t end) {
      double part = 0;
      simd([&] {
        for (int64_t r = begin; r < end; ++r) {
          if (!c[r]) continue;
          s[2 * r] = stats_of(x[r], classes, inverse);
          s[2 * r + 1] = stats_of(y[r], classes, inverse);
          part += divergence(x[r], s[2 * r], y[r], s[2 * r + 1], classes, inverse);
        }
      });
      return part;
    });
  });
  return record(
      "kl_divergence", Tensor::scalar(t * t * sum / divisor, in.dtype()), {logits},
      [x = in, other, counts, stats, t, divisor](const Tensor& grad_out,
                                                 std::span<GradSlot> grad_in) mutable {
        const double g = grad_out.item() * t / divisor;
        accumulate_over(grad_in[0], x, [&](Tensor& grad, double beta) {
          dispatch_float(x.dtype(), [&]<class T>() {
            const auto from = rows<T>(std::as_const(x)), y = rows<T>(std::as_const(other));
            const auto dx = rows<T>(grad);
            const auto* const s =
                reinterpret_cast<const SoftmaxStats<T>*>(std::as_const(stats).data<T>());
            for_rows(dx.count, dx.width,
                     [=, n = std::as_const(counts).data<int32_t>(), factor = static_cast<T>(g),
                      inverse = static_cast<T>(1 / t), b = static_cast<T>(beta)](int64_t r) {
                       if (n[r])
                         gradient_row(from[r], s[2 * r], y[r], s[2 * r + 1], dx.width, inverse,
                                      factor, dx[r], b);
                       else
                         kernels::row_accumulate(dx[r], dx.width, b, [](int64_t) { return T{0}; });
                     });
          });
        });
      });
}

}  // namespace longhand
