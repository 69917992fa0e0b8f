// Metrics of a model: loss, accuracy and what follows from them.
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

/// The prediction of a model for a batch: logits, and the targets they correspond to.
struct Prediction {
  Variable logits;  // (..., C)
  /// (...) i32; those with data::ignore_index count for nothing. Numbers and labels have the shape of the
  /// logits, which are then the predicted numbers, or the logits of labels.
  Tensor targets;
};

/// The model as used by training: predicts every target of a batch that counts. It may omit the
/// others: where few targets count, the head of the model would be most of the work.
using LogitsFn = std::function<Prediction(const data::Batch&, const nn::Pass&)>;

/// Returns the indices (R) i32 of the targets (...) that count, in row-major order: of numbers and labels, all.
Tensor counted_places(const Tensor& targets);
/// Returns the targets (R) at these indices.
Tensor targets_at(const Tensor& targets, const Tensor& places);

/// Sums over targets; those with data::ignore_index count for nothing.
struct Metrics {
  /// Of -log softmax(logits)[target], in nats; of squared errors of numbers; of the binary cross entropies of
  /// labels.
  double loss_sum = 0;
  /// Targets with the largest logit (the first on ties); labels on the right side of probability 1/2; no
  /// numbers.
  int64_t correct = 0;
  int64_t targets = 0;  // number of targets that count
  int64_t examples = 0;
  int64_t tokens = 0;   // without padding
  int64_t found = 0;    // labels 1 that are predicted
  int64_t numbers = 0;  // targets that are numbers, which have no accuracy

  /// Means over all targets, regardless of the example; 0 if there are none. If all examples have
  /// the same number of targets, as in MQAR, this is also the mean of the examples' means.
  double loss() const { return targets ? loss_sum / static_cast<double>(targets) : 0; }
  double accuracy() const;  // NaN of numbers
  /// e^loss
  double perplexity() const { return std::exp(loss()); }
  /// loss / ln 2: for tokens that are bytes.
  double bits_per_byte() const { return loss() / std::numbers::ln2; }
  /// The root of the mean squared error, of numbers.
  double rmse() const { return std::sqrt(loss()); }
  /// 2 tp / (2 tp + fp + fn) over all labels together (micro F1), where tp is `found`; 0 if there are none.
  double f1() const;

  Metrics& operator+=(const Metrics& other);
};

/// The score of one target: its loss in nats, and whether its logit is the largest.
struct TargetScore {
  double loss = 0;
  bool correct = false;
};

/// Returns loss_sum, correct, targets and found of logits (..., C) for targets (...). Sums are computed in
/// double in an order that depends on the sizes alone. `each`, if not null, is set to the scores of
/// the targets that count, in row-major order. Throws ShapeError for mismatched shapes, and DataError
/// for a target that is neither a class nor ignored.
Metrics measure(const Tensor& logits, const Tensor& targets,
                std::vector<TargetScore>* each = nullptr);

/// The same for a whole batch: also its examples and tokens.
Metrics measure_batch(const Tensor& logits, const Tensor& targets, const data::Batch& batch,
                      std::vector<TargetScore>* each = nullptr);

/// Returns Metrics::correct alone, which needs no exponentials.
int64_t count_correct(const Tensor& logits, const Tensor& targets);

}  // namespace longhand::train
