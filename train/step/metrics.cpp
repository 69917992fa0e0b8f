#include "longhand/train/step/metrics.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "longhand/core/dry_run.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"

namespace longhand::train {
namespace {

// Returns loss_sum (if with_loss), correct and targets for `rows` rows of C logits. Unless null,
// sets `each` to the scores of the rows.
template <class T, bool with_loss>
Metrics measure_rows(const T* logits, const int32_t* targets, int64_t rows, int64_t C,
                     TargetScore* each) {
  Metrics m;
  simd([&] {
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t target = targets[r];
      if (target == data::ignore_index) continue;
      const T* x = logits + r * C;
      const T top = kernels::row_max(x, C);
      ++m.targets;
      // The maximum of a row with a NaN is NaN, which equals nothing, so the row predicts nothing.
      const bool correct = x[target] == top && std::find(x, x + target, top) == x + target;
      m.correct += correct;
      if (!with_loss) continue;
      // -log softmax(x)[target] = log sum_j e^(x_j - top) + top - x[target]
      const double loss = std::log(static_cast<double>(kernels::lane_sum<T>(
                              C, [=](int64_t j) { return math::exp(x[j] - top); }))) +
                          (static_cast<double>(top) - static_cast<double>(x[target]));
      m.loss_sum += loss;
      if (each) each[r] = {loss, correct};
    }
  });
  return m;
}

/// Returns the score of a number or label for the model's output x.
template <class T>
TargetScore score_of(T x, float target) {
  const double difference = static_cast<double>(x) - static_cast<double>(target);
  return {difference * difference, false};
}
template <class T>
TargetScore score_of(T x_, uint8_t target) {
  // log(1 + e^x) - target x, without overflow.
  const double x = static_cast<double>(x_);
  return {std::max(x, 0.0) - (target ? x : 0.0) + std::log1p(std::exp(-std::abs(x))),
          (x > 0) == (target != 0) && !std::isnan(x)};
}

/// Like measure_all(), for numbers (f32) or labels (u8).
template <class Target>
Metrics measure_values(const Tensor& logits, const Tensor& targets,
                       std::vector<TargetScore>* each) {
  check<ShapeError>(logits.shape() == targets.shape(),
                    "metrics: expected one prediction for each number or label, got ",
                    logits.shape(), " for targets ", targets.shape());
  if (is_dry()) return {};
  const Tensor dense_logits = logits.contiguous(), dense_targets = targets.contiguous();
  const Target* const t = dense_targets.data<Target>();
  if (each) each->resize(static_cast<size_t>(targets.numel()));
  return dispatch_float(logits.dtype(), [&]<class T>() {
    const T* const x = dense_logits.data<T>();
    return parallel_sum<Metrics>(
        targets.numel(), kernels::elements_per_task, [&](int64_t begin, int64_t end) {
          constexpr bool labels = std::is_same_v<Target, uint8_t>;
          Metrics m{.targets = end - begin, .numbers = labels ? 0 : end - begin};
          for (int64_t i = begin; i < end; ++i) {
            const TargetScore score = score_of(x[i], t[i]);
            m.loss_sum += score.loss;
            m.correct += score.correct;
            m.found += labels && score.correct && t[i] != 0;
            if (each) (*each)[static_cast<size_t>(i)] = score;
          }
          return m;
        });
  });
}

template <bool with_loss>
Metrics measure_all(const Tensor& logits, const Tensor& targets,
                    std::vector<TargetScore>* each = nullptr) {
  if (targets.dtype() == DType::f32) return measure_values<float>(logits, targets, each);
  if (targets.dtype() == DType::u8) return measure_values<uint8_t>(logits, targets, each);
  check<ShapeError>(logits.rank() >= 1 && logits.shape().without_axis(-1) == targets.shape(),
                    "metrics: expected logits (…, C) for targets (…), got logits ", logits.shape(),
                    " for targets ", targets.shape());
  const int64_t C = logits.size(-1);
  const Tensor dense_logits = logits.contiguous(), dense_targets = targets.contiguous();
  const int32_t* t = dense_targets.data<int32_t>();
  if (is_dry()) return {};
  for (int64_t i = 0; i < targets.numel(); ++i)
    check<DataError>((t[i] >= 0 && t[i] < C) || t[i] == data::ignore_index, "metrics: target ",
                     t[i], " is out of range for ", C, " classes");
  if (each) each->resize(static_cast<size_t>(targets.numel()));
  TargetScore* const scores = each ? each->data() : nullptr;
  const Metrics sum = dispatch_float(logits.dtype(), [&]<class T>() {
    const T* x = dense_logits.data<T>();
    const int64_t grain = kernels::elements_per_task / std::max<int64_t>(C, 1);
    return parallel_sum<Metrics>(targets.numel(), grain, [&](int64_t begin, int64_t end) {
      return measure_rows<T, with_loss>(x + begin * C, t + begin, end - begin, C,
                                        scores ? scores + begin : nullptr);
    });
  });
  if (each) {
    size_t counted = 0;
    for (int64_t i = 0; i < targets.numel(); ++i)
      if (t[i] != data::ignore_index) (*each)[counted++] = (*each)[i];
    each->resize(counted);
  }
  return sum;
}

}  // namespace

Tensor counted_places(const Tensor& targets) {
  const Tensor dense = targets.contiguous();
  const int32_t* const t = targets.dtype() == DType::i32 ? dense.data<int32_t>() : nullptr;
  std::vector<int32_t> places;
  for (int64_t i = 0; i < dense.numel(); ++i)
    if (!t || t[i] != data::ignore_index) places.push_back(static_cast<int32_t>(i));
  return Tensor::from(places, {static_cast<int64_t>(places.size())});
}

Tensor targets_at(const Tensor& targets, const Tensor& places) {
  const Tensor dense = targets.contiguous();
  Tensor out = Tensor::empty(places.shape(), DType::i32);
  for (int64_t i = 0; i < places.numel(); ++i)
    out.data<int32_t>()[i] = dense.data<int32_t>()[places.data<int32_t>()[i]];
  return out;
}

double Metrics::accuracy() const {
  if (numbers > 0) return std::numeric_limits<double>::quiet_NaN();
  return targets ? static_cast<double>(correct) / static_cast<double>(targets) : 0;
}

double Metrics::f1() const {
  const int64_t all = 2 * found + targets - correct;
  return all ? 2 * static_cast<double>(found) / static_cast<double>(all) : 0;
}

Metrics& Metrics::operator+=(const Metrics& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  targets += other.targets;
  examples += other.examples;
  tokens += other.tokens;
  found += other.found;
  numbers += other.numbers;
  return *this;
}

Metrics measure(const Tensor& logits, const Tensor& targets, std::vector<TargetScore>* each) {
  return measure_all<true>(logits, targets, each);
}

Metrics measure_batch(const Tensor& logits, const Tensor& targets, const data::Batch& batch,
                      std::vector<TargetScore>* each) {
  Metrics out = measure(logits, targets, each);
  out.examples = batch.tokens.size(0);
  out.tokens = count_tokens(batch);
  return out;
}

int64_t count_correct(const Tensor& logits, const Tensor& targets) {
  return measure_all<false>(logits, targets).correct;
}

}  // namespace longhand::train
