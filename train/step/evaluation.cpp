#include "longhand/train/step/evaluation.h"

#include <algorithm>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::train {
namespace {

/// Joins predictions (..., C) into one for all their targets (R), or numbers and labels (R, C).
Prediction joined(const std::vector<Prediction>& parts) {
  Variables logits, targets;
  for (const Prediction& part : parts) {
    const int64_t C = part.logits.size(-1), n = part.logits.value().numel() / C;
    const bool classes = part.targets.dtype() == DType::i32;
    logits.push_back(Variable(part.logits.value().reshape({n, C})));
    targets.push_back(Variable(part.targets.reshape(classes ? Shape{n} : Shape{n, C})));
  }
  return {concat(logits, 0), concat(targets, 0).value()};
}

}  // namespace

LogitsFn in_parts(LogitsFn logits) {
  return [logits = std::move(logits)](const data::Batch& batch, const nn::Pass& pass) {
    constexpr int64_t tokens = 128, most = 8;  // tokens per part; number of parts
    const int64_t B = batch.tokens.size(0), N = batch.tokens.size(1);
    const int64_t each =
        std::max({int64_t{1}, tokens / std::max<int64_t>(1, N), (B + most - 1) / most});
    if (B <= each || pass.join) return logits(batch, pass);
    // A dry run uses the memory of the parts that are computed concurrently.
    if (is_dry()) return logits(batch.examples(0, std::min(B, each * threads())), pass);
    std::vector<Prediction> parts(static_cast<size_t>((B + each - 1) / each));
    parallel_for(B, each, [&](int64_t begin, int64_t end) {
      const NoGrad no_grad;  // on this thread
      parts[static_cast<size_t>(begin / each)] = logits(batch.examples(begin, end), pass);
    });
    return joined(parts);
  };
}

bool for_each_batch(const data::Dataset& dataset, const EvaluationOptions& options,
                    const std::function<void(const data::Batch&, std::span<const int64_t>)>& body) {
  const int64_t size = options.batch_size;
  const Reducer::Share share = options.reducer->share();
  check<ConfigError>(size >= 1, "evaluate: batch_size is ", size, ", expected 1 or more");
  const int64_t rest = std::max<int64_t>(0, dataset.size() - options.begin);
  const int64_t all = options.limit > 0 ? std::min(options.limit, rest) : rest;
  // Padding costs time, so examples of a batch should have similar lengths: blocks of examples are
  // sorted by length. A block is some batches, so that memory does not grow with the data.
  const int64_t block = std::max<int64_t>(1, (int64_t{1} << 20) / size) * size;
  std::vector<int64_t> length;
  EvaluationProgress progress{.all_batches = (all + size - 1) / size, .all_examples = all};
  const auto report = [&] {
    if (options.on_progress) options.on_progress(progress);
  };
  report();
  for (int64_t first = options.begin; first < options.begin + all; first += block) {
    std::vector<int64_t> order =
        data::indices_from(first, std::min(first + block, options.begin + all));
    length.resize(order.size());
    for (const int64_t i : order) length[static_cast<size_t>(i - first)] = dataset.length(i);
    std::ranges::stable_sort(order, {},
                             [&](int64_t i) { return length[static_cast<size_t>(i - first)]; });
    for (int64_t begin = 0; begin < std::ssize(order); begin += size) {
      const int64_t turn = progress.batches % share.of;
      if (turn == 0 && options.should_stop && options.should_stop()) return false;
      const int64_t count = std::min(size, std::ssize(order) - begin);
      const std::span<const int64_t> examples(order.data() + begin, static_cast<size_t>(count));
      if (turn == share.index) body(dataset.collate(examples), examples);
      ++progress.batches;
      progress.examples += count;
      report();
    }
  }
  return true;
}

bool for_each_segment(
    const data::Dataset& dataset, const EvaluationOptions& options,
    const std::function<bool(const data::Segment&, const EvaluationOptions&)>& part) {
  std::vector<data::Segment> segments = dataset.segments();
  if (segments.empty()) segments.push_back({"", 0, dataset.size()});
  const auto size_of = [&](const data::Segment& s) {
    const int64_t size = s.end - s.begin;
    return options.limit > 0 ? std::min(options.limit, size) : size;
  };
  EvaluationProgress done, all;
  for (const data::Segment& s : segments) {
    all.all_examples += size_of(s);
    all.all_batches +=
        (size_of(s) + options.batch_size - 1) / std::max<int64_t>(1, options.batch_size);
  }
  for (const data::Segment& s : segments) {
    EvaluationOptions own = options;
    own.begin = s.begin;
    own.limit = size_of(s);
    EvaluationProgress last;
    if (options.on_progress)
      own.on_progress = [&](const EvaluationProgress& p) {
        last = p;
        options.on_progress({.batches = done.batches + p.batches,
                             .all_batches = all.all_batches,
                             .examples = done.examples + p.examples,
                             .all_examples = all.all_examples});
      };
    if (!part(s, own)) return false;
    done.batches += last.batches;
    done.examples += last.examples;
  }
  return true;
}

std::optional<Metrics> evaluate(const LogitsFn& logits, const data::Dataset& dataset,
                                const EvaluationOptions& options) {
  const NoGrad no_grad;
  const LogitsFn predict = in_parts(logits);
  std::vector<Metrics> parts;  // one per batch
  const bool all =
      for_each_batch(dataset, options, [&](const data::Batch& batch, std::span<const int64_t>) {
        nn::Pass pass = nn::Pass::evaluate();
        const data::Batch own = options.reducer->tokens_of(batch, pass);
        const Prediction prediction = predict(own, pass);
        Metrics m = measure_batch(prediction.logits.value(), prediction.targets, batch);
        options.reducer->keep_share(m, batch);
        parts.push_back(m);
      });
  if (!all) return std::nullopt;
  options.reducer->add_others(parts);
  Metrics total;
  for (const Metrics& part : parts) total += part;
  return total;
}

std::optional<std::vector<SegmentMetrics>> evaluate_segments(const LogitsFn& logits,
                                                             const data::Dataset& dataset,
                                                             const EvaluationOptions& options) {
  std::vector<SegmentMetrics> out;
  const bool all =
      for_each_segment(dataset, options, [&](const data::Segment& s, const EvaluationOptions& own) {
        const auto metrics = evaluate(logits, dataset, own);
        if (metrics) out.push_back({s.name, *metrics, s.length});
        return metrics.has_value();
      });
  return all ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace longhand::train
