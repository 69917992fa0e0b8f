// Scores by example, of several models on the same examples and of their mean probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhand/core/statistics.h"
#include "longhand/train/step/evaluation.h"

namespace longhand::train {

/// Sums over the targets of each example, in dataset order. In a mean over models, `correct` may be
/// fractional.
struct ExampleScores {
  std::vector<double> loss, correct, targets;

  int64_t size() const { return static_cast<int64_t>(targets.size()); }
  /// Appends the examples of `other`.
  void append(const ExampleScores& other);
};

/// The scores of one model: overall, and by example.
struct Scores {
  Metrics metrics;
  ExampleScores examples;
};

/// The scores of several models on one segment of a dataset.
struct SegmentScores {
  std::string name;  // empty: the dataset is not a mixture
  std::vector<Scores> members;
  /// The scores of predicting with the mean of the members' probabilities,
  ///   p(c) = 1/K Σ_k softmax(logits_k)(c),
  /// with loss -log p(target), predicting the class with the largest p. Nothing for a single
  /// member.
  std::optional<Scores> ensemble{};
};

/// Evaluates all models on each batch, segment by segment as for_each_segment() does. A member's
/// metrics are bitwise identical to evaluate(). Empty if should_stop ended it. All models must
/// predict the same targets with the same number of classes. Throws ShapeError if they do not, and
/// Error if a model omits targets that count.
std::optional<std::vector<SegmentScores>> evaluate_members(std::span<const LogitsFn> members,
                                                           const data::Dataset& dataset,
                                                           const EvaluationOptions& options = {});

/// Returns the scores over all segments.
SegmentScores total(const std::vector<SegmentScores>& segments);

/// Returns the mean of several models' scores, example by example. Throws Error for none, or if
/// their numbers of examples differ.
ExampleScores mean(std::span<const ExampleScores> members);

/// Mean loss over targets, with the 95 % interval of ratio() over examples.
Estimate loss_of(const ExampleScores& scores);
/// Fraction of correct targets, with the 95 % interval of grouped_proportion() over examples.
Estimate accuracy_of(const ExampleScores& scores);

/// Differences a - b of two models on the same examples, with the 95 % intervals of ratio() and
/// paired_difference() over per-example differences, which cancel their common noise.
struct ScoreDifference {
  Estimate loss, accuracy;
};
/// Throws Error unless both have the same number of targets in each example.
ScoreDifference difference(const ExampleScores& a, const ExampleScores& b);

/// Returns the loss of the best constant prediction for the examples that `options` select: the
/// mean of each number, or the share of examples with each label. 0 without such targets.
double constant_loss(const data::Dataset& dataset, const EvaluationOptions& options);

}  // namespace longhand::train
