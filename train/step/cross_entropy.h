// Cross entropy of a model's predictions, as a Loss.
#pragma once

#include "longhand/autograd/ops.h"
#include "longhand/train/step/loss.h"
#include "longhand/train/step/metrics.h"

namespace longhand::train {

/// Returns the prediction of `logits` for a batch. Throws ShapeError unless there is one prediction
/// for each target that counts.
Prediction predict(const LogitsFn& logits, const data::Batch& batch, const nn::Pass& pass);

/// Sets Loss::correct and, with label smoothing, sets Loss::unsmoothed to the unsmoothed loss.
void measure_into(Loss& loss, const Prediction& prediction, const BatchSize& whole,
                  double label_smoothing);

/// Returns the options of cross_entropy() for a part of a batch of size `whole`.
CrossEntropyOptions cross_entropy_options(const BatchSize& whole, double label_smoothing);

/// Returns the loss summed over targets (...) that count, divided by their number in the whole
/// batch: cross entropy, squared error for numbers (f32), or binary cross entropy for labels (u8).
Variable loss_of_targets(Variable logits, const Tensor& targets, const BatchSize& whole,
                         double label_smoothing);

/// Returns the mean loss over all targets that count, see loss_of_targets(). With label smoothing,
/// it minimises the smoothed loss and records the unsmoothed one.
LossFn cross_entropy_loss(LogitsFn logits, double label_smoothing);

}  // namespace longhand::train
