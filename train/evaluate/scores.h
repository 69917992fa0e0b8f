// Scores by example, of several models on the same examples and of the mean of their probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhand/core/statistics.h"
#include "longhand/train/step/evaluation.h"

namespace longhand::train {

/// Sums over the targets of each example, in the order of the dataset. In a mean over models `correct`
/// may be a fraction.
struct ExampleScores {
  std::vector<double> loss, correct, targets;

  int64_t size() const { return static_cast<int64_t>(targets.size()); }
  /// Adds the examples of `other` at the end.
  void append(const ExampleScores& other);
};

/// The scores of one model: in all, and by example.
struct Scores {
  Metrics metrics;
  ExampleScores examples;
};

/// What several models score on one segment of a dataset.
struct SegmentScores {
  std::string name;  // empty: the dataset is no mixture
  std::vector<Scores> members;
  /// The scores of the prediction with the mean of the members' probabilities,
  ///   p(c) = 1/K Σ_k softmax(logits_k)(c),
  /// whose loss is -log p(target), and which predicts the class with the largest p. Nothing for a
  /// single member.
  std::optional<Scores> ensemble{};
};

/// Evaluates all models on each batch, segment by segment as for_each_segment() does. Metrics of a
/// member have the bits of evaluate(). Empty if should_stop ended it. All models must predict the same
/// targets with the same number of classes. Throws ShapeError if they do not, and Error if a model
/// omits targets that count.
std::optional<std::vector<SegmentScores>> evaluate_members(std::span<const LogitsFn> members,
                                                           const data::Dataset& dataset,
                                                           const EvaluationOptions& options = {});

/// The scores of all segments together.
SegmentScores total(const std::vector<SegmentScores>& segments);

/// The mean of several models' scores, example by example. Throws Error for none, or for scores of
/// different numbers of examples.
ExampleScores mean(std::span<const ExampleScores> members);

/// The mean loss over targets, with the 95 % interval of ratio(), over examples.
Estimate loss_of(const ExampleScores& scores);
/// The fraction of correct targets, with the 95 % interval of grouped_proportion(), over examples.
Estimate accuracy_of(const ExampleScores& scores);

/// Differences a - b of two models on the same examples, with the 95 % intervals of ratio() and
/// paired_difference() for the differences of each example: the noise that both have in common cancels.
struct ScoreDifference {
  Estimate loss, accuracy;
};
/// Throws Error unless both have the same numbers of targets in each example.
ScoreDifference difference(const ExampleScores& a, const ExampleScores& b);

/// The loss of the best constant prediction of numbers or labels for the examples that `options` select: the
/// mean of each number, or the share of examples that have each label. Without targets of these kinds: 0.
double constant_loss(const data::Dataset& dataset, const EvaluationOptions& options);

}  // namespace longhand::train
