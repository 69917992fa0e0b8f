// Evaluation of a model on a dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhand/train/step/metrics.h"
#include "longhand/train/step/reducer.h"

namespace longhand::train {

/// Progress of an evaluation.
struct EvaluationProgress {
  int64_t batches = 0, all_batches = 0;
  int64_t examples = 0, all_examples = 0;
};

struct EvaluationOptions {
  int64_t batch_size = 32;
  int64_t begin = 0;  // the first example
  int64_t limit = 0;  // evaluate at most this many examples; 0: all
  /// Called before the first batch and after each one, if not empty.
  std::function<void(const EvaluationProgress&)> on_progress = {};
  /// Called before each batch, if not empty; returning true ends the evaluation without a result.
  /// All processes call it together, before each takes a batch.
  std::function<bool()> should_stop = {};
  /// The processes that divide the batches. All return the result of a single process.
  const Reducer* reducer = &one_process();
};

/// Returns equivalent logits for evaluation without gradients that processes parts of a batch in
/// parallel, so that small batches also occupy all threads. With several parts, logits are (R, C)
/// for targets (R). A pass over parts of sequences is not divided.
LogitsFn in_parts(LogitsFn logits);

/// Calls body(batch, examples) for this process's share of the examples that `options` select, in
/// batches of examples of similar length; `examples` are their indices. Returns false if
/// should_stop ended it. Throws ConfigError if batch_size is below 1.
bool for_each_batch(
    const data::Dataset& dataset, const EvaluationOptions& options,
    const std::function<void(const data::Batch&, std::span<const int64_t> examples)>& body);

/// Calls part(segment, options) for each segment of a mixture in the order of Dataset::segments(),
/// or once for all examples, with an empty name. These options select the segment's examples,
/// `limit` applies to each segment, and progress covers all segments. Returns false as soon as a
/// call does.
bool for_each_segment(
    const data::Dataset& dataset, const EvaluationOptions& options,
    const std::function<bool(const data::Segment&, const EvaluationOptions&)>& part);

/// Returns the metrics over a dataset, in batches of examples of similar length, without gradients
/// and in evaluation mode; empty if should_stop ended it. Calls `logits` from several threads, see
/// in_parts(). Throws ConfigError if batch_size is below 1.
std::optional<Metrics> evaluate(const LogitsFn& logits, const data::Dataset& dataset,
                                const EvaluationOptions& options = {});

/// The metrics of each segment of a mixture: see for_each_segment().
struct SegmentMetrics {
  std::string name;
  Metrics metrics;
  int64_t length = 0;  // data::Segment::length
};
std::optional<std::vector<SegmentMetrics>> evaluate_segments(const LogitsFn& logits,
                                                             const data::Dataset& dataset,
                                                             const EvaluationOptions& options = {});

}  // namespace longhand::train
