// longhand predict: the predictions of a trained model, example by example.
#include "longhand/train/evaluate/predict.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/run/child.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string run, data, out;
  std::string split = "test";
  std::string checkpoint = "best";
  int64_t limit = 0;
  bool logits = false;
};

enum class Format { json_lines, hdf5, tensors };

Format format_of(const std::string& out) {
  const std::filesystem::path path(out);
  if (out.empty() || path.extension() == ".jsonl") return Format::json_lines;
  if (path.extension() == ".h5") return Format::hdf5;
  check<ConfigError>(train::is_tensor_file(path), "-o ", out,
                     ": expected a name that ends in .jsonl, .h5, .npz or .safetensors");
  return Format::tensors;
}

/// Replaces the data of the run by a file: of its task, if that reads files, else of the task tokens.
void read_from(const std::string& file, train::Config& config) {
  const std::string task = to_string(config.given().at("data.task"));
  const std::string name = task.substr(1, task.size() - 2);  // without quotes
  const bool is_hdf5 = std::filesystem::path(file).extension() == ".h5";
  const Schema options = data::task_options(name);
  const bool reads_files = std::any_of(options.begin(), options.end(),
                                       [](const auto& option) { return option.name == "path"; });
  check<ConfigError>(reads_files || is_hdf5, "--data ", file, ": the data of ", name,
                     " are generated; expected an HDF5 file, FILE.h5, with tokens and targets, or "
                     "--set data.task=TASK with the options of that task");
  if (is_hdf5 && name != "tokens") {
    std::vector<std::string> keys;
    for (const auto& [key, value] : config.given())
      if (key.starts_with("data.")) keys.push_back(key.substr(5));
    for (const std::string& key : keys) config.erase("data", key);
    config.assign("data", "task", std::string("tokens"), "--data");
  }
  config.assign("data", "path", file, "--data");
}

/// Throws ConfigError if predictions do not fit into memory, before any of them is computed.
void check_memory(const Arguments& a, int64_t targets, int64_t classes, double available) {
  // The values, and the file, which is made in memory: numbers as text, or values twice.
  const double each = format_of(a.out) == Format::json_lines ? 4 + 16 : 4 + 8;
  const double bytes = each * static_cast<double>(targets) * static_cast<double>(classes);
  check<ConfigError>(bytes <= available, "predictions of ", with_commas(targets),
                     " targets or more with ", with_commas(classes), " classes need ",
                     train::bytes_text(bytes), ", other processes leave ",
                     train::bytes_text(available), "; predict the first N examples with --limit N");
}

/// What the predictions are of.
std::map<std::string, std::string> about(const Arguments& a, const train::SavedModel& run,
                                         const train::Experiment& experiment) {
  return {{"longhand", longhand::version()},
          {"checkpoint", run.file},
          {"digest", run.digest},
          {"step", std::to_string(run.checkpoint.training.step)},
          {"writer", "longhand predict"},
          {"task", experiment.task.info.name},
          {"split", a.split},
          {"values", a.logits ? "logits" : "probabilities"}};
}

void write(const Arguments& a, const train::Predictions& predictions,
           const std::map<std::string, std::string>& metadata) {
  switch (format_of(a.out)) {
    case Format::json_lines: {
      const std::string text = train::to_json_lines(predictions);
      if (a.out.empty())
        write_stdout(text);
      else
        data::write_file_durably(a.out, text);
      return;
    }
    case Format::tensors: {
      train::TensorFile file = train::to_tensors(predictions);
      file.metadata = metadata;
      return train::write_tensor_file(a.out, file);
    }
    case Format::hdf5: {
      data::Hdf5Writer out;
      for (const auto& [key, value] : metadata) out.attribute("/", key, value);
      for (const auto& [name, tensor] : train::to_tensors(predictions).tensors)
        out.put(name, tensor);
      return data::write_file_durably(a.out, out.image());
    }
  }
}

int predict(const Arguments& a) {
  format_of(a.out);
  const std::filesystem::path folder = std::filesystem::path(a.out).parent_path();
  check<ConfigError>(folder.empty() || std::filesystem::is_directory(folder), "-o ", a.out,
                     ": there is no folder ", folder.string());
  check<ConfigError>(
      !a.json || !a.out.empty(),
      "--json: expected -o FILE, beside which the summary is printed; without -o the "
      "predictions are printed, as JSON Lines");
  train::SavedModel run = train::load_model(a.run, a.checkpoint);
  check_finite(run.checkpoint, run.file);
  run.accept_data = a.accept_data;
  if (!a.data.empty()) {
    read_from(a.data, run.config);
  } else if (!a.trust_paths) {
    run.check_paths({"data.path"}, &a.set);
  }
  for (const std::string& assignment : a.set) run.config.assign(assignment);
  const Progress::Mode mode = Progress::mode_for_stderr(a.quiet || a.json);
  const auto experiment = [&] {
    const Waiting waiting(mode, "preparing data and model");
    return std::make_unique<train::Experiment>(run.config, data::Splits::only(a.split));
  }();
  report_ignored(experiment->config.ignored(experiment->effective), a.quiet || a.json);
  try {
    load_weights(experiment->model, run.checkpoint);
  } catch (const DataError& error) {
    throw DataError(run.file + ": " + error.what());
  }
  run.check_data(experiment->task, experiment->config);
  const train::Predictions predictions = [&] {
    Progress progress(mode, "predict", 2);
    const auto available = static_cast<double>(train::available_memory());
    return *train::predict(
        train::logits_of(experiment->model), experiment->task.split(a.split), a.logits,
        {.batch_size = experiment->options.eval_batch_size,
         .limit = a.limit,
         .on_progress =
             [&](const train::EvaluationProgress& p) {
               progress.update(p.examples, p.all_examples, "");
             }},
        [&](int64_t targets) {
          check_memory(a, targets, experiment->model.config().classes, available);
        });
  }();
  const train::Metrics& metrics = predictions.metrics;
  check<DivergedError>(std::isfinite(metrics.loss()), run.file, ": the loss on the ", a.split,
                       " split is ", metrics.loss(), ", although all weights are finite");
  write(a, predictions, about(a, run, *experiment));
  if (a.out.empty()) return success;
  if (a.json)
    print_json({{"checkpoint", run.file},
                {"step", run.checkpoint.training.step},
                {"task", experiment->task.info.name},
                {"split", a.split},
                {"examples", metrics.examples},
                {"targets", metrics.targets},
                {"classes", experiment->model.config().classes},
                {"loss", json_number(metrics.loss())},
                {"accuracy", json_number(metrics.accuracy())},
                {"out", a.out}});
  else if (!a.quiet)
    print_stdout(
        "written   {}: {} targets of {} examples, {} classes\nloss      {:.6f}\n"
        "accuracy  {:.6f}\n",
        a.out, with_commas(metrics.targets), with_commas(metrics.examples),
        experiment->model.config().classes, metrics.loss(), metrics.accuracy());
  return success;
}

}  // namespace

void add_predict(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command("predict", "Write the prediction of a trained model for each example",
                              [a] { return predict(*a); });
  c.add("run", a->run, "DIR", "Run directory or checkpoint file").required();
  c.out(a->out, "FILE",
        "File to write: NAME.jsonl, .h5, .npz or .safetensors [JSON Lines on stdout]",
        [](const auto& file) {
          return begins_with(file, "{\"example\": 0, \"target") ||
                 begins_with(file, "{\"example\": 0, \"positions\": [") ||
                 is_tensor_file_of(file, "longhand predict");
        });
  c.add("--split", a->split, "SPLIT", "train, validation or test [test]");
  c.add("--data", a->data, "FILE",
        "Other data: a file as the task of the run reads it, or FILE.h5 with tokens and targets; "
        "only the split is read");
  c.flag("--logits", a->logits, "Write logits instead of probabilities");
  c.add("--checkpoint", a->checkpoint, "NAME",
        "best, last or the name of another checkpoint of the run [best]");
  c.add("--limit", a->limit, "N",
        "Predict the first N examples, of each segment of a mixture [all]")
      .positive();
  c.set(*a);
  c.trust_paths(*a);
  c.accept_data(*a);
  c.threads();
  c.quiet(*a);
  c.json(a->json);
  c.words_to_set(*a);
  c.footer(
      "A line of JSON for each example, in the order of the data:\n"
      "  {\"example\": 0, \"target\": 1, \"prediction\": 1, \"probabilities\": [0.2, 0.8]}\n"
      "If targets are of tokens, positions, targets, predictions and probabilities are lists, of "
      "the tokens whose targets count. The other formats hold arrays with a row for each such "
      "target:\n"
      "example, position, target, prediction, probabilities (or logits). Data without labels "
      "need targets, too: give any class, such as 0. Results do not depend on --threads.");
}

}  // namespace longhand::cli
