#include "longhand/train/step/cross_entropy.h"

#include <algorithm>
#include <utility>

namespace longhand::train {

Prediction predict(const LogitsFn& logits, const data::Batch& batch, const nn::Pass& pass) {
  Prediction prediction = logits(batch, pass);
  const int64_t predicted = data::count_targets(prediction.targets),
                given = data::count_targets(batch.targets);
  check<ShapeError>(predicted == given, "trainer: expected predictions for ", given,
                    " targets of the batch, got ", predicted);
  return prediction;
}

CrossEntropyOptions cross_entropy_options(const BatchSize& whole, double label_smoothing) {
  return {.ignore_index = data::ignore_index,
          .label_smoothing = label_smoothing,
          .normalizer = static_cast<double>(std::max<int64_t>(whole.targets, 1))};
}

void measure_into(Loss& loss, const Prediction& prediction, const BatchSize& whole,
                  double label_smoothing) {
  const Tensor& logits = prediction.logits.value();
  if (label_smoothing == 0) {
    loss.correct = count_correct(logits, prediction.targets);
    return;
  }
  const Metrics of_data = measure(logits, prediction.targets);
  loss.correct = of_data.correct;
  loss.unsmoothed = of_data.loss_sum / *cross_entropy_options(whole, 0).normalizer;
}

Variable loss_of_targets(Variable logits, const Tensor& targets, const BatchSize& whole,
                         double label_smoothing) {
  const CrossEntropyOptions options = cross_entropy_options(whole, label_smoothing);
  // The logits are moved: their gradient may be written in place over them.
  if (targets.dtype() == DType::i32)
    return cross_entropy(std::exchange(logits, {}), targets, options);
  const Variable y(targets.to(logits.dtype()));
  const Variable each =
      targets.dtype() == DType::u8 ? softplus(logits) - logits * y : square(logits - y);
  return sum(each, {0, 1}) / *options.normalizer;
}

LossFn cross_entropy_loss(LogitsFn logits, double label_smoothing) {
  return [logits = std::move(logits), label_smoothing](
             const data::Batch& part, const BatchSize& whole, const nn::Pass& pass) {
    Prediction prediction = predict(logits, part, pass);
    Loss out;
    measure_into(out, prediction, whole, label_smoothing);
    out.value = loss_of_targets(std::exchange(prediction.logits, {}), prediction.targets, whole,
                                label_smoothing);
    return out;
  };
}

}  // namespace longhand::train
