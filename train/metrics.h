// What is measured of a model: loss, accuracy and what follows from them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "longhand/autograd/variable.h"
#include "longhand/data/dataset.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// The model as training sees it: logits (B, C) for targets (B), or (B, N, C) for targets (B, N).
/// For these it may also give (R, C), the rows of the R targets that count, in order: where few do,
/// the head of the model is most of the work.
using LogitsFn = std::function<Variable(const data::Batch&, const nn::Pass&)>;

/// The places (R) i32 of the targets (B, N) that count, in row-major order.
Tensor counted_places(const Tensor& targets);

/// The targets that these logits are for: all of them, or (R) those that count; see LogitsFn.
Tensor targets_of(const Tensor& logits, const Tensor& targets);

/// Sums over targets; those with data::ignore_index count for nothing.
struct Metrics {
  double loss_sum = 0;  // of -log softmax(logits)[target], in nats
  int64_t correct = 0;  // targets that have the largest logit (the first of equals)
  int64_t targets = 0;  // counted
  int64_t examples = 0;
  int64_t tokens = 0;  // real ones

  /// Means over the targets, whatever example they belong to; 0 if there are none. Where all
  /// examples have equally many targets, as in MQAR, this is also the mean of the examples' means.
  double loss() const;
  double accuracy() const;
  /// e^loss
  double perplexity() const;
  /// loss / ln 2: for tokens that are bytes.
  double bits_per_byte() const;

  Metrics& operator+=(const Metrics& other);
};

/// Metrics of one batch: logits (…, C) for batch.targets (…). Sums are added in double in an order
/// that depends on the sizes alone. Throws ShapeError for shapes that do not fit, and DataError for
/// a target that is neither a class nor ignored.
Metrics measure(const Tensor& logits, const data::Batch& batch);

/// The part of measure() that needs no exponentials: Metrics::correct.
int64_t count_correct(const Tensor& logits, const Tensor& targets);
/// Targets of i32 that are not ignored.
int64_t count_targets(const Tensor& targets);
/// Tokens that are not padding.
int64_t count_tokens(const data::Batch& batch);

/// Metrics over the first `limit` examples of a dataset (all if 0), in batches of `batch_size`
/// examples of similar length, without gradients and not in training mode. When `stop` says so
/// between two batches, there is no result.
std::optional<Metrics> evaluate(const LogitsFn& logits, const data::Dataset& dataset,
                                int64_t batch_size, int64_t limit = 0,
                                const std::function<bool()>& stop = {});

}  // namespace longhand::train
