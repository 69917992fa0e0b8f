// Metrics of a model: loss, accuracy and derived values.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

#include "longhand/autograd/variable.h"
#include "longhand/data/dataset.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// A model's prediction for a batch: logits, and the corresponding targets.
struct Prediction {
  Variable logits;  // (..., C)
  /// (...) i32; data::ignore_index marks ignored targets. Numbers and labels have the shape of the
  /// logits, which then hold the predicted numbers or the logits of the labels.
  Tensor targets;
};

/// A model as training uses it: predicts every target of a batch that counts. It may omit the
/// others, since the model's head would dominate the work where few targets count.
using LogitsFn = std::function<Prediction(const data::Batch&, const nn::Pass&)>;

/// Returns the indices (R) i32 of targets (...) that count, row-major; all for numbers and labels.
Tensor counted_places(const Tensor& targets);
/// Returns the targets (R) at these indices.
Tensor targets_at(const Tensor& targets, const Tensor& places);

/// Sums over targets, without those equal to data::ignore_index.
struct Metrics {
  /// Sum of -log softmax(logits)[target], in nats; of squared errors for numbers; of binary cross
  /// entropies for labels.
  double loss_sum = 0;
  /// Targets that have the largest logit (the first on ties), or labels on the right side of
  /// probability 1/2. Numbers are never correct.
  int64_t correct = 0;
  int64_t targets = 0;  // number of targets that count
  int64_t examples = 0;
  int64_t tokens = 0;   // without padding
  int64_t found = 0;    // labels of 1 that are predicted
  int64_t numbers = 0;  // targets that are numbers, which have no accuracy

  /// Mean over all targets, whichever example they belong to; 0 if there are none. If all examples
  /// have equally many targets, as in MQAR, this is also the mean of the examples' means.
  double loss() const { return targets ? loss_sum / static_cast<double>(targets) : 0; }
  double accuracy() const;  // NaN for numbers
  /// e^loss
  double perplexity() const { return std::exp(loss()); }
  /// loss / ln 2, for tokens that are bytes.
  double bits_per_byte() const { return loss() / std::numbers::ln2; }
  /// Root mean squared error, for numbers.
  double rmse() const { return std::sqrt(loss()); }
  /// Micro F1 over all labels, 2 tp / (2 tp + fp + fn) with tp = `found`; 0 if there are none.
  double f1() const;

  Metrics& operator+=(const Metrics& other);
};

/// The score of one target: its loss in nats, and whether its logit is the largest.
struct TargetScore {
  double loss = 0;
  bool correct = false;
};

/// Returns loss_sum, correct, targets and found for logits (..., C) and targets (...). Accumulates
/// in double in an order that depends only on the sizes. `each`, if not null, is set to the scores
/// of the targets that count, row-major. Throws ShapeError for mismatched shapes, and DataError for
/// a target that is neither a class nor ignored.
Metrics measure(const Tensor& logits, const Tensor& targets,
                std::vector<TargetScore>* each = nullptr);

/// Like measure(), for a whole batch: also sets examples and tokens.
Metrics measure_batch(const Tensor& logits, const Tensor& targets, const data::Batch& batch,
                      std::vector<TargetScore>* each = nullptr);

/// Returns Metrics::correct only, which needs no exponentials.
int64_t count_correct(const Tensor& logits, const Tensor& targets);

}  // namespace longhand::train
