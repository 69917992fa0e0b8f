// The cross entropy of a model's predictions as a Loss.
#pragma once

#include "longhand/autograd/ops.h"
#include "longhand/train/step/loss.h"
#include "longhand/train/step/metrics.h"

namespace longhand::train {

/// Returns what `logits` predicts for a batch. Throws ShapeError if that is not one prediction for
/// each target that counts.
Prediction predict(const LogitsFn& logits, const data::Batch& batch, const nn::Pass& pass);

/// Sets Loss::correct, and with label smoothing Loss::unsmoothed to the cross entropy of the data.
void measure_into(Loss& loss, const Prediction& prediction, const BatchSize& whole,
                  double label_smoothing);

/// The options of cross_entropy() for a part of a batch of this size.
CrossEntropyOptions cross_entropy_options(const BatchSize& whole, double label_smoothing);

/// The sum of the losses of targets (...) that count, divided by the number of those of the whole batch: cross
/// entropies, squared errors of numbers (f32), or binary cross entropies of labels (u8).
Variable loss_of_targets(Variable logits, const Tensor& targets, const BatchSize& whole,
                         double label_smoothing);

/// The mean loss of all targets that count: see loss_of_targets(). With label smoothing, it is minimised with the
/// smoothed targets, and recorded with those of the data.
LossFn cross_entropy_loss(LogitsFn logits, double label_smoothing);

}  // namespace longhand::train
