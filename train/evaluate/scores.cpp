#include "longhand/train/evaluate/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/parallel.h"

namespace longhand::train {
namespace {

/// Returns log(e^a + e^b), also for -infinity.
double log_add(double a, double b) {
  const double top = std::max(a, b);
  if (top == -std::numeric_limits<double>::infinity()) return top;
  return top + std::log1p(std::exp(-std::abs(a - b)));
}

/// Adds softmax(logits), for logits (..., C), to probabilities kept as logarithms in `sum`, so that
/// none becomes 0. Used as logits, these sums predict what their mean predicts.
void add_probabilities(const Tensor& logits, Tensor& sum) {
  const Tensor own = log_softmax(Variable(logits.to(DType::f64))).value().contiguous();
  if (!sum) {
    sum = own;
    return;
  }
  check<ShapeError>(sum.shape() == own.shape(), "ensemble: expected logits ", sum.shape(),
                    " of every member, got ", own.shape());
  const double* const from = own.data<double>();
  double* const to = sum.data<double>();
  parallel_for(own.numel(), kernels::elements_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = log_add(to[i], from[i]);
  });
}

Scores empty_scores(int64_t examples) {
  const auto n = static_cast<size_t>(examples);
  return {{}, {std::vector<double>(n), std::vector<double>(n), std::vector<double>(n)}};
}

/// Adds the scores of a prediction for a batch's examples, counted from `begin`.
void add(const Tensor& logits, const Tensor& targets, const data::Batch& batch,
         std::span<const int64_t> examples, int64_t begin, Scores& to) {
  std::vector<TargetScore> each;
  to.metrics += measure_batch(logits, targets, batch, &each);
  const std::vector<int32_t> places = counted_places(batch.targets).to_vector<int32_t>();
  check<Error>(each.size() == places.size(), "evaluate: expected predictions of ", places.size(),
               " targets, got ", each.size());
  const int64_t width = batch.targets.numel() / std::ssize(examples);
  for (size_t i = 0; i < each.size(); ++i) {
    const auto example =
        static_cast<size_t>(examples[static_cast<size_t>(places[i] / width)] - begin);
    to.examples.loss[example] += each[i].loss;
    to.examples.correct[example] += each[i].correct ? 1 : 0;
    to.examples.targets[example] += 1;
  }
}

std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

}  // namespace

void ExampleScores::append(const ExampleScores& other) {
  loss.insert(loss.end(), other.loss.begin(), other.loss.end());
  correct.insert(correct.end(), other.correct.begin(), other.correct.end());
  targets.insert(targets.end(), other.targets.begin(), other.targets.end());
}

std::optional<std::vector<SegmentScores>> evaluate_members(std::span<const LogitsFn> members,
                                                           const data::Dataset& dataset,
                                                           const EvaluationOptions& options) {
  const NoGrad no_grad;
  std::vector<LogitsFn> models;
  for (const LogitsFn& member : members) models.push_back(in_parts(member));
  std::vector<SegmentScores> out;
  const bool all = for_each_segment(
      dataset, options, [&](const data::Segment& segment, const EvaluationOptions& own) {
        SegmentScores& scores = out.emplace_back();
        scores.name = segment.name;
        const int64_t size = own.limit > 0 ? own.limit : segment.end - segment.begin;
        scores.members.assign(members.size(), empty_scores(size));
        if (members.size() > 1) scores.ensemble = empty_scores(size);
        return for_each_batch(
            dataset, own, [&](const data::Batch& batch, std::span<const int64_t> examples) {
              Tensor sum, targets;
              for (size_t k = 0; k < members.size(); ++k) {
                const Prediction prediction = models[k](batch, nn::Pass::evaluate());
                const Tensor& logits = prediction.logits.value();
                targets = prediction.targets;
                add(logits, targets, batch, examples, own.begin, scores.members[k]);
                if (scores.ensemble) add_probabilities(logits, sum);
              }
              if (scores.ensemble) add(sum, targets, batch, examples, own.begin, *scores.ensemble);
            });
      });
  return all ? std::optional(std::move(out)) : std::nullopt;
}

SegmentScores total(const std::vector<SegmentScores>& segments) {
  SegmentScores out;
  const auto join = [](const Scores& from, Scores& to) {
    to.metrics += from.metrics;
    to.examples.append(from.examples);
  };
  for (const SegmentScores& segment : segments) {
    out.members.resize(segment.members.size());
    for (size_t k = 0; k < segment.members.size(); ++k) join(segment.members[k], out.members[k]);
    if (!segment.ensemble) continue;
    if (!out.ensemble) out.ensemble.emplace();
    join(*segment.ensemble, *out.ensemble);
  }
  return out;
}

ExampleScores mean(std::span<const ExampleScores> members) {
  check<Error>(!members.empty(), "mean of scores: expected at least one model");
  ExampleScores out = members[0];
  const auto count = static_cast<double>(members.size());
  for (const ExampleScores& each : members.subspan(1)) {
    check<Error>(each.targets == out.targets, "mean of scores: expected the same examples");
    for (size_t i = 0; i < out.targets.size(); ++i) {
      out.loss[i] += each.loss[i];
      out.correct[i] += each.correct[i];
    }
  }
  for (size_t i = 0; i < out.targets.size(); ++i) {
    out.loss[i] /= count;
    out.correct[i] /= count;
  }
  return out;
}

Estimate loss_of(const ExampleScores& scores) { return ratio(scores.loss, scores.targets); }

Estimate accuracy_of(const ExampleScores& scores) {
  return grouped_proportion(scores.correct, scores.targets);
}

ScoreDifference difference(const ExampleScores& a, const ExampleScores& b) {
  check<Error>(a.targets == b.targets, "difference of scores: expected the same examples");
  return {ratio(differences(a.loss, b.loss), a.targets),
          paired_difference(differences(a.correct, b.correct), a.targets)};
}

double constant_loss(const data::Dataset& dataset, const EvaluationOptions& options) {
  std::vector<double> means, squares;  // per column: mean, and sum of squares around it
  bool labels = false;
  double n = 0;
  for_each_segment(dataset, options, [&](const data::Segment&, const EvaluationOptions& own) {
    return for_each_batch(dataset, own, [&](const data::Batch& batch, std::span<const int64_t>) {
      if (batch.targets.dtype() == DType::i32) return;
      labels = batch.targets.dtype() == DType::u8;
      const Tensor targets = batch.targets.to(DType::f64).contiguous();
      means.resize(static_cast<size_t>(targets.size(1)));
      squares.resize(means.size());
      const double* value = targets.data<double>();
      for (int64_t b = 0; b < targets.size(0); ++b) {
        ++n;
        for (size_t k = 0; k < means.size(); ++k) {
          const double before = *value - means[k];
          means[k] += before / n;
          squares[k] += before * (*value++ - means[k]);
        }
      }
    });
  });
  double sum = 0;
  for (size_t k = 0; k < means.size(); ++k) {
    const auto entropy = [](double p) { return p > 0 ? -p * std::log(p) : 0; };
    sum += labels ? entropy(means[k]) + entropy(1 - means[k]) : squares[k] / n;
  }
  return means.empty() ? 0 : sum / static_cast<double>(means.size());
}

}  // namespace longhand::train
