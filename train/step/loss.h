// Loss: what a trainer minimises.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "longhand/autograd/ops.h"
#include "longhand/train/step/metrics.h"

namespace longhand::train {

/// The size of a batch.
struct BatchSize {
  int64_t sequences = 0;
  int64_t targets = 0;  // that count
  int64_t tokens = 0;   // without padding
};
BatchSize size_of(const data::Batch& batch);

/// The loss of a part of a batch.
struct Loss {
  /// Its part of the mean over the whole batch, a scalar: the values of all parts add up to that mean.
  Variable value;
  int64_t correct = 0;  // targets predicted correctly
  /// If `value` is a weighted sum of several terms: each of them by name, without its weight.
  std::map<std::string, double> terms{};
  /// What is recorded if it is not `value`: with label smoothing, the loss of the targets of the data.
  std::optional<double> unsmoothed{};

  double recorded() const { return unsmoothed ? *unsmoothed : value.value().item(); }
};

/// Computes the loss of a part of a batch; `whole` is the size of that batch, by which sums are
/// divided.
using LossFn =
    std::function<Loss(const data::Batch& part, const BatchSize& whole, const nn::Pass& pass)>;

/// Returns what `logits` predicts for a batch. Throws ShapeError if that is not one prediction for
/// each target that counts.
Prediction predict(const LogitsFn& logits, const data::Batch& batch, const nn::Pass& pass);

/// Sets Loss::correct, and with label smoothing Loss::unsmoothed to the cross entropy of the data.
void measure_into(Loss& loss, const Prediction& prediction, const BatchSize& whole,
                  double label_smoothing);

/// The options of cross_entropy() for a part of a batch of this size.
CrossEntropyOptions cross_entropy_options(const BatchSize& whole, double label_smoothing);

/// The mean cross entropy of all targets that count. With label smoothing, it is minimised with the
/// smoothed targets, and recorded with those of the data.
LossFn cross_entropy_loss(LogitsFn logits, double label_smoothing);

}  // namespace longhand::train
