#include "longhand/train/evaluate/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/results/json.h"
#include "longhand/train/results/table.h"

namespace longhand::train {
namespace {

/// Returns the row of each example's first prediction, in example order, followed by the total.
/// `on_count` receives the count so far after every batch, and may throw.
std::vector<int64_t> first_rows(const data::Dataset& dataset, const EvaluationOptions& options,
                                const std::function<void(int64_t)>& on_count) {
  EvaluationOptions quiet = options;
  quiet.on_progress = {};
  quiet.should_stop = {};
  std::vector<int64_t> rows(static_cast<size_t>(dataset.size()) + 1);
  int64_t count = 0;
  for_each_segment(dataset, quiet, [&](const data::Segment&, const EvaluationOptions& own) {
    return for_each_batch(
        dataset, own, [&](const data::Batch& batch, std::span<const int64_t> examples) {
          if (batch.targets.dtype() != DType::i32) {
            for (const int64_t example : examples) ++rows[static_cast<size_t>(example) + 1];
            count += std::ssize(examples);
          } else {
            const Tensor places = counted_places(batch.targets);
            const int64_t width = batch.targets.numel() / std::ssize(examples);
            for (const int32_t place : places.to_vector<int32_t>())
              ++rows[static_cast<size_t>(examples[static_cast<size_t>(place / width)]) + 1];
            count += places.numel();
          }
          if (on_count) on_count(count);
        });
  });
  std::partial_sum(rows.begin(), rows.end(), rows.begin());
  return rows;
}

/// Returns the row of the next prediction for an example.
int64_t next_row(int64_t example, std::vector<int64_t>& next, Predictions& out) {
  const int64_t row = next[static_cast<size_t>(example)]++;
  check<Error>(row < out.size(), "predict: the data have changed since targets were counted");
  out.example[static_cast<size_t>(row)] = example;
  return row;
}

/// put() for numbers and labels: one row per example.
void put_values(const Prediction& prediction, const data::Batch& batch,
                std::span<const int64_t> examples, std::vector<int64_t>& next, Predictions& out) {
  const bool labels = batch.targets.dtype() == DType::u8;
  const Variable& logits = prediction.logits;
  const Tensor values =
      (labels && !out.logits ? sigmoid(logits).value() : logits.value()).to(DType::f32);
  if (!out.values) {
    out.values = Tensor::empty({out.size(), values.size(1)});
    out.targets = Tensor::empty(out.values.shape(), batch.targets.dtype());
  }
  for (int64_t i = 0; i < std::ssize(examples); ++i) {
    const int64_t row = next_row(examples[static_cast<size_t>(i)], next, out);
    copy_into(out.values.slice(0, row, row + 1), values.slice(0, i, i + 1));
    copy_into(out.targets.slice(0, row, row + 1), batch.targets.slice(0, i, i + 1));
  }
}

/// Writes a batch's prediction to the next rows of its examples, whose indices are `examples`.
void put(const Prediction& prediction, const data::Batch& batch, std::span<const int64_t> examples,
         std::vector<int64_t>& next, Predictions& out) {
  if (batch.targets.dtype() != DType::i32)
    return put_values(prediction, batch, examples, next, out);
  const Variable& logits = prediction.logits;
  const Tensor values =
      (out.logits ? logits.value() : softmax(logits).value()).to(DType::f32).contiguous();
  const Tensor scores = logits.value().to(DType::f32).contiguous();
  const int64_t C = values.size(-1);
  const bool per_token = batch.per_token();
  if (!out.values) {
    out.values = Tensor::empty({out.size(), C});
    out.target.resize(out.example.size());
    out.predicted.resize(out.example.size());
    if (per_token) out.position.resize(out.example.size());
  }
  // The prediction may omit targets that do not count.
  const Tensor places = counted_places(batch.targets), given = counted_places(prediction.targets);
  const std::vector<int32_t> targets = targets_at(batch.targets, places).to_vector<int32_t>();
  check<Error>(targets == targets_at(prediction.targets, given).to_vector<int32_t>(),
               "predict: expected predictions of all targets that count");
  const auto width = static_cast<int32_t>(batch.targets.numel() / std::ssize(examples));
  for (size_t i = 0; i < targets.size(); ++i) {
    const int32_t place = places.data<int32_t>()[i];
    const int64_t row = next_row(examples[static_cast<size_t>(place / width)], next, out);
    const auto to = static_cast<size_t>(row);
    const int64_t begin = given.data<int32_t>()[i] * C;
    const float* const from = scores.data<float>() + begin;
    if (per_token) out.position[to] = place % width;
    out.target[to] = targets[i];
    out.predicted[to] = static_cast<int32_t>(std::max_element(from, from + C) - from);
    std::copy_n(values.data<float>() + begin, C, out.values.data<float>() + row * C);
  }
}

void put_number(std::string& out, float value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), "{}", value);
  else
    fmt::format_to(std::back_inserter(out), "\"{}\"", name_of_not_finite(value));
}

/// Appends f(i) for i = begin … end-1 as a list.
template <class F>
void put_list(std::string& out, int64_t begin, int64_t end, F&& f) {
  out += '[';
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ", ";
    f(i);
  }
  out += ']';
}

/// Returns whether a file is JSON Lines. Throws ConfigError for a name of unknown format.
bool is_json_lines(const std::string& out) {
  const std::filesystem::path extension = std::filesystem::path(out).extension();
  if (out.empty() || extension == ".jsonl") return true;
  check<ConfigError>(extension == ".h5" || is_tensor_file(out), "-o ", out,
                     ": expected a name that ends in .jsonl, .h5, .npz or .safetensors");
  return false;
}

}  // namespace

Tensor Predictions::predicted_labels() const {
  Tensor out = Tensor::empty(values.shape(), DType::u8);
  for (int64_t i = 0; i < values.numel(); ++i)
    out.data<uint8_t>()[i] = values.data<float>()[i] > (logits ? 0.0F : 0.5F);
  return out;
}

std::optional<Predictions> predict(const LogitsFn& model, const data::Dataset& dataset, bool logits,
                                   const EvaluationOptions& options,
                                   const std::function<void(int64_t)>& on_count) {
  const NoGrad no_grad;
  const LogitsFn logits_of = in_parts(model);
  std::vector<int64_t> next = first_rows(dataset, options, on_count);
  const auto rows = static_cast<size_t>(next.back());
  Predictions out;
  out.logits = logits;
  out.example.resize(rows);
  const bool all =
      for_each_segment(dataset, options, [&](const data::Segment&, const EvaluationOptions& own) {
        Metrics part;  // the sums of evaluate_segments()
        const bool done = for_each_batch(
            dataset, own, [&](const data::Batch& batch, std::span<const int64_t> examples) {
              const Prediction prediction = logits_of(batch, nn::Pass::evaluate());
              put(prediction, batch, examples, next, out);
              part += measure_batch(prediction.logits.value(), prediction.targets, batch);
            });
        out.metrics += part;
        return done;
      });
  return all ? std::optional(std::move(out)) : std::nullopt;
}

std::string to_json_lines(const Predictions& p, const data::Dataset* dataset) {
  std::string out;
  const int64_t C = p.values ? p.values.size(1) : 0;
  const float* const values = p.values ? p.values.data<float>() : nullptr;
  const auto put_key = [&](const char* key) {
    fmt::format_to(std::back_inserter(out), ", \"{}\": ", key);
  };
  const auto put_row = [&](const float* rows, int64_t row) {
    put_list(out, row * C, (row + 1) * C, [&](int64_t i) { put_number(out, rows[i]); });
  };
  const auto put_integers = [&](const char* key, int64_t begin, int64_t end, const auto& list) {
    put_key(key);
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
    if (dataset) {
      const data::Batch batch = dataset->collate({{p.example[at]}});
      const auto tokens = data::examples_of(batch)[0].tokens;
      put_integers("tokens", 0, std::ssize(tokens), tokens);
    }
    if (p.targets) {
      const bool labels = p.targets.dtype() == DType::u8;
      const Tensor targets = p.targets.to(DType::f32),
                   predicted = labels ? p.predicted_labels().to(DType::f32) : p.values;
      for (const auto& [key, tensor] : {std::pair("target", targets), {"prediction", predicted}}) {
        put_key(key);
        put_row(tensor.data<float>(), begin);
      }
      if (labels) {
        put_key(kind);
        put_row(values, begin);
      }
    } else if (p.position.empty()) {
      fmt::format_to(std::back_inserter(out), ", \"target\": {}, \"prediction\": {}", p.target[at],
                     p.predicted[at]);
      put_key(kind);
      put_row(values, begin);
    } else {
      put_integers("positions", begin, end, p.position);
      put_integers("targets", begin, end, p.target);
      put_integers("predictions", begin, end, p.predicted);
      put_key(kind);
      put_list(out, begin, end, [&](int64_t row) { put_row(values, row); });
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
  const bool numbers = p.targets && p.targets.dtype() == DType::f32;
  if (p.targets) {
    out.tensors["target"] = p.targets;
    out.tensors["prediction"] = numbers ? p.values : p.predicted_labels();
  } else {
    out.tensors["target"] = Tensor::from(p.target, rows);
    out.tensors["prediction"] = Tensor::from(p.predicted, rows);
  }
  if (p.values && !numbers) out.tensors[p.logits ? "logits" : "probabilities"] = p.values;
  return out;
}

void check_predictions_path(const std::string& out) { is_json_lines(out); }

void check_predictions_memory(const std::string& out, int64_t targets, int64_t classes,
                              double available) {
  // The values, plus the file, which is built in memory: numbers as text, or values twice.
  const double each = is_json_lines(out) ? 4 + 16 : 4 + 8;
  const double bytes = each * static_cast<double>(targets) * static_cast<double>(classes);
  check<ConfigError>(bytes <= available, "predictions of ", with_commas(targets),
                     " targets or more with ", with_commas(classes), " classes need ",
                     bytes_text(bytes), ", other processes leave ", bytes_text(available),
                     "; predict the first N examples with --limit N");
}

void write_predictions(const std::string& out, const Predictions& predictions,
                       const std::map<std::string, std::string>& metadata,
                       const data::Dataset* dataset) {
  if (is_json_lines(out)) return data::write_file_durably(out, to_json_lines(predictions, dataset));
  TensorFile file = to_tensors(predictions);
  file.metadata = metadata;
  if (is_tensor_file(out)) return write_tensor_file(out, file);
  data::Hdf5Writer hdf5;
  for (const auto& [key, value] : file.metadata) hdf5.attribute("/", key, value);
  for (const auto& [name, tensor] : file.tensors) hdf5.put(name, tensor);
  data::write_file_durably(out, hdf5.image());
}

void read_data_from(const std::string& file, Config& config) {
  const std::string task = to_string(config.given().at("data.task"));
  const std::string name = task.substr(1, task.size() - 2);  // without quotes
  const bool is_hdf5 = std::filesystem::path(file).extension() == ".h5";
  const Schema options = data::task_options(name);
  const bool reads_files =
      std::ranges::any_of(options, [](const auto& option) { return option.name == "path"; });
  check<ConfigError>(reads_files || is_hdf5, "--data ", file, ": the data of ", name,
                     " are generated; expected an HDF5 file, FILE.h5, with tokens and targets, or "
                     "--set data.task=TASK with the options of that task");
  if (is_hdf5 && name != "tokens") {
    for (const std::string& key : config.data().keys()) config.erase("data", key);
    config.assign("data", "task", std::string("tokens"), "--data");
  }
  config.assign("data", "path", file, "--data");
}

}  // namespace longhand::train
