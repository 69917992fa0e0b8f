#include "longhand/train/step/metrics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "longhand/core/dry_run.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"

namespace longhand::train {
namespace {

// loss_sum (if with_loss), correct and targets of `rows` rows of C logits. Unless null, `each` is set
// to the scores of the rows.
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
      // A row with a NaN has the maximum NaN, which equals nothing, so it predicts nothing.
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

template <bool with_loss>
Metrics measure_all(const Tensor& logits, const Tensor& targets,
                    std::vector<TargetScore>* each = nullptr) {
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
  const int32_t* const t = dense.data<int32_t>();
  std::vector<int32_t> places;
  for (int64_t i = 0; i < dense.numel(); ++i)
    if (t[i] != data::ignore_index) places.push_back(static_cast<int32_t>(i));
  return Tensor::from(places, {static_cast<int64_t>(places.size())});
}

Tensor targets_at(const Tensor& targets, const Tensor& places) {
  const Tensor dense = targets.contiguous();
  Tensor out = Tensor::empty(places.shape(), DType::i32);
  for (int64_t i = 0; i < places.numel(); ++i)
    out.data<int32_t>()[i] = dense.data<int32_t>()[places.data<int32_t>()[i]];
  return out;
}

double Metrics::loss() const { return targets ? loss_sum / static_cast<double>(targets) : 0; }

double Metrics::accuracy() const {
  return targets ? static_cast<double>(correct) / static_cast<double>(targets) : 0;
}

double Metrics::perplexity() const { return std::exp(loss()); }
double Metrics::bits_per_byte() const { return loss() / std::numbers::ln2; }

Metrics& Metrics::operator+=(const Metrics& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  targets += other.targets;
  examples += other.examples;
  tokens += other.tokens;
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
