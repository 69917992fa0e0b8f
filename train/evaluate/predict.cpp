#include "longhand/train/evaluate/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/train/results/json.h"

namespace longhand::train {
namespace {

/// The number of targets that count, of the examples that the options select. `on_count` gets it after
/// every batch, and may throw.
int64_t count_targets(const data::Dataset& dataset, const EvaluationOptions& options,
                      const std::function<void(int64_t)>& on_count) {
  EvaluationOptions quiet = options;
  quiet.on_progress = {};
  quiet.should_stop = {};
  int64_t count = 0;
  for_each_segment(dataset, quiet, [&](const data::Segment&, const EvaluationOptions& own) {
    return for_each_batch(dataset, own, [&](const data::Batch& batch, std::span<const int64_t>) {
      count += train::count_targets(batch.targets);
      if (on_count) on_count(count);
    });
  });
  return count;
}

/// Collects predictions in the order in which they are computed, and sorts them.
class Collector {
 public:
  Collector(bool logits, int64_t rows) : logits_(logits), rows_(rows) {}

  /// `prediction` is that of the batch, whose examples have these numbers. Returns its metrics.
  Metrics add(const Prediction& prediction, const data::Batch& batch,
              std::span<const int64_t> examples) {
    const Variable& logits = prediction.logits;
    const Tensor values =
        (logits_ ? logits.value() : softmax(logits).value()).to(DType::f32).contiguous();
    const Tensor scores = logits.value().to(DType::f32).contiguous();
    const int64_t C = values.size(-1);
    if (!out_.values) out_.values = Tensor::empty({rows_, C});
    const Tensor given = prediction.targets.contiguous(), all = batch.targets.contiguous();
    const int32_t *const g = given.data<int32_t>(), *const t = all.data<int32_t>();
    const bool per_token = all.rank() == 2;
    const int64_t width = per_token ? all.size(1) : 1;
    int64_t row = 0;  // of the prediction, which may omit targets that do not count
    for (int64_t i = 0; i < all.numel(); ++i) {
      if (t[i] == data::ignore_index) continue;
      while (row < given.numel() && g[row] == data::ignore_index) ++row;
      check<Error>(row < given.numel() && g[row] == t[i] && out_.size() < rows_,
                   "predict: expected predictions of all targets that count");
      const float* const from = scores.data<float>() + row * C;
      out_.example.push_back(examples[static_cast<size_t>(i / width)]);
      if (per_token) out_.position.push_back(static_cast<int32_t>(i % width));
      out_.target.push_back(t[i]);
      out_.predicted.push_back(static_cast<int32_t>(std::max_element(from, from + C) - from));
      std::copy_n(values.data<float>() + row * C, C,
                  out_.values.data<float>() + (out_.size() - 1) * C);
      ++row;
    }
    Metrics m = measure(logits.value(), prediction.targets);
    m.examples = std::ssize(examples);
    m.tokens = count_tokens(batch);
    return m;
  }

  Predictions finish(const Metrics& metrics) && {
    out_.metrics = metrics;
    std::vector<size_t> order(out_.target.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return out_.example[a] < out_.example[b]; });
    const auto sort = [&](auto& list) {
      if (list.empty()) return;
      auto sorted = list;
      for (size_t i = 0; i < order.size(); ++i) sorted[i] = list[order[i]];
      list = std::move(sorted);
    };
    sort(out_.example), sort(out_.position), sort(out_.target), sort(out_.predicted);
    if (out_.values) sort_rows(order);
    out_.logits = logits_;
    return std::move(out_);
  }

 private:
  /// Moves rows along the cycles of the permutation: a copy of all would take the memory twice.
  void sort_rows(std::vector<size_t> order) {
    const auto C = static_cast<size_t>(out_.values.size(1));
    float* const x = out_.values.data<float>();
    std::vector<float> first(C);
    for (size_t begin = 0; begin < order.size(); ++begin) {
      if (order[begin] == begin) continue;
      std::copy_n(x + begin * C, C, first.begin());
      size_t to = begin;
      for (size_t from = order[to]; from != begin; from = order[to]) {
        std::copy_n(x + from * C, C, x + to * C);
        order[to] = to;
        to = from;
      }
      std::copy_n(first.begin(), C, x + to * C);
      order[to] = to;
    }
  }

  bool logits_;
  int64_t rows_;
  Predictions out_;
};

void put_number(std::string& out, float value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), "{}", value);
  else
    fmt::format_to(std::back_inserter(out), "\"{}\"", name_of_not_finite(value));
}

/// f(i) for i = begin … end-1, as a list.
template <class F>
void put_list(std::string& out, int64_t begin, int64_t end, F&& f) {
  out += '[';
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ", ";
    f(i);
  }
  out += ']';
}

}  // namespace

std::optional<Predictions> predict(const LogitsFn& model, const data::Dataset& dataset, bool logits,
                                   const EvaluationOptions& options,
                                   const std::function<void(int64_t)>& on_count) {
  const NoGrad no_grad;
  const int64_t rows = count_targets(dataset, options, on_count);
  Collector collector(logits, rows);
  Metrics metrics;
  const bool all =
      for_each_segment(dataset, options, [&](const data::Segment&, const EvaluationOptions& own) {
        Metrics part;  // the sums of evaluate_segments()
        const bool done = for_each_batch(
            dataset, own, [&](const data::Batch& batch, std::span<const int64_t> examples) {
              part += collector.add(model(batch, nn::Pass::evaluate()), batch, examples);
            });
        metrics += part;
        return done;
      });
  return all ? std::optional(std::move(collector).finish(metrics)) : std::nullopt;
}

std::string to_json_lines(const Predictions& p) {
  std::string out;
  const int64_t C = p.values ? p.values.size(1) : 0;
  const float* const values = p.values ? p.values.data<float>() : nullptr;
  const auto put_row = [&](int64_t row) {
    put_list(out, row * C, (row + 1) * C, [&](int64_t i) { put_number(out, values[i]); });
  };
  const auto put_integers = [&](const char* key, int64_t begin, int64_t end, const auto& list) {
    fmt::format_to(std::back_inserter(out), ", \"{}\": ", key);
    put_list(out, begin, end, [&](int64_t i) {
      fmt::format_to(std::back_inserter(out), "{}", list[static_cast<size_t>(i)]);
    });
  };
  const char* const kind = p.logits ? "logits" : "probabilities";
  for (int64_t begin = 0, end = 0; begin < p.size(); begin = end) {
    const auto at = static_cast<size_t>(begin);
    for (end = begin; end < p.size() && p.example[static_cast<size_t>(end)] == p.example[at];)
      ++end;
    fmt::format_to(std::back_inserter(out), "{{\"example\": {}", p.example[at]);
    if (p.position.empty()) {
      fmt::format_to(std::back_inserter(out),
                     ", \"target\": {}, \"prediction\": {}, \"{}\": ", p.target[at],
                     p.predicted[at], kind);
      put_row(begin);
    } else {
      put_integers("positions", begin, end, p.position);
      put_integers("targets", begin, end, p.target);
      put_integers("predictions", begin, end, p.predicted);
      fmt::format_to(std::back_inserter(out), ", \"{}\": ", kind);
      put_list(out, begin, end, put_row);
    }
    out += "}\n";
  }
  return out;
}

TensorFile to_tensors(const Predictions& p) {
  TensorFile out;
  const Shape rows = {p.size()};
  out.tensors["example"] = Tensor::from(p.example, rows);
  if (!p.position.empty()) out.tensors["position"] = Tensor::from(p.position, rows);
  out.tensors["target"] = Tensor::from(p.target, rows);
  out.tensors["prediction"] = Tensor::from(p.predicted, rows);
  if (p.values) out.tensors[p.logits ? "logits" : "probabilities"] = p.values;
  return out;
}

}  // namespace longhand::train
