// longhand evaluate: loss and accuracy of a trained model, also with another attention variant or on
// other data.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/storage.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/experiment.h"
#include "longhand/train/run/run_record.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string run;
  std::string split = "test";
  std::string checkpoint = "best";
  int64_t limit = 0;
};

bool changes_attention(const std::vector<std::string>& assignments) {
  return std::any_of(assignments.begin(), assignments.end(),
                     [](const std::string& a) { return a.starts_with("attention."); });
}

int evaluate(const Arguments& arguments) {
  train::SavedModel run = train::load_model(arguments.run, arguments.checkpoint);
  for (const std::string& assignment : arguments.set) run.config.assign(assignment);
  const Progress::Mode mode = Progress::mode_for_stderr(arguments.quiet);
  const auto experiment = [&] {
    const Waiting waiting(mode, "preparing data and model");
    return std::make_unique<train::Experiment>(run.config, data::Splits::only(arguments.split));
  }();
  report_ignored(experiment->config.ignored(experiment->effective), arguments.quiet);
  train::Fresh fresh;
  try {
    fresh = load_weights(experiment->model, run.checkpoint, changes_attention(arguments.set));
  } catch (const DataError& error) {
    throw DataError(run.file + ": " + error.what());
  }

  const data::Dataset& dataset = experiment->task.split(arguments.split);
  std::vector<train::SegmentMetrics> segments;
  {
    Progress progress(mode, "evaluate", 2);
    segments = *train::evaluate_segments(train::logits_of(experiment->model), dataset,
                                         {.batch_size = experiment->options.eval_batch_size,
                                          .limit = arguments.limit,
                                          .on_progress = [&](const train::EvaluationProgress& p) {
                                            progress.update(p.examples, p.all_examples, "");
                                          }});
  }
  train::Metrics metrics;
  for (const train::SegmentMetrics& segment : segments) metrics += segment.metrics;
  if (segments.size() == 1) segments.clear();

  const bool bytes = experiment->task.info.bytes;
  const std::string attention = experiment->model.config().attention_name();
  if (arguments.json) {
    Json out = {{"checkpoint", run.file},
                {"step", run.checkpoint.training.step},
                {"task", experiment->task.info.name},
                {"split", arguments.split},
                {"attention", attention},
                {"examples", metrics.examples},
                {"targets", metrics.targets},
                {"loss", json_number(metrics.loss())},
                {"accuracy", json_number(metrics.accuracy())},
                {"perplexity", json_number(metrics.perplexity())},
                {"peak_memory_bytes", peak_resident_memory()}};
    if (bytes) out["bits_per_byte"] = json_number(metrics.bits_per_byte());
    for (const auto& [name, part] : segments)
      out["segments"].push_back({{"name", name},
                                 {"examples", part.examples},
                                 {"targets", part.targets},
                                 {"loss", json_number(part.loss())},
                                 {"accuracy", json_number(part.accuracy())}});
    out["initialised"] = fresh.initialised;
    out["unused"] = fresh.unused;
    print_json(out);
    return success;
  }
  fmt::print("checkpoint     {} (step {})\n", run.file, run.checkpoint.training.step);
  fmt::print("data           {}, {}: {} examples, {} targets\n", experiment->task.info.name,
             arguments.split, with_commas(metrics.examples), with_commas(metrics.targets));
  fmt::print("attention      {}\n", attention);
  for (const std::string& name : fresh.initialised) fmt::print("initialised    {}\n", name);
  for (const std::string& name : fresh.unused) fmt::print("unused         {}\n", name);
  fmt::print("loss           {:.6f}\naccuracy       {:.6f}\nperplexity     {:.4f}\n",
             metrics.loss(), metrics.accuracy(), metrics.perplexity());
  if (bytes) fmt::print("bits per byte  {:.6f}\n", metrics.bits_per_byte());
  for (const auto& [name, part] : segments)
    fmt::print("segment        {}: loss {:.6f}, accuracy {:.6f}, {} targets\n", name, part.loss(),
               part.accuracy(), with_commas(part.targets));
  fmt::print("peak memory    {} MiB\n", peak_resident_memory() >> 20);
  return success;
}

}  // namespace

void add_evaluate(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command("evaluate", "Compute loss and accuracy of a trained model",
                              [a] { return evaluate(*a); });
  c.add("run", a->run, "DIR", "Run directory or checkpoint file").required();
  c.add("--split", a->split, "SPLIT", "train, validation or test [test]");
  c.add("--checkpoint", a->checkpoint, "NAME",
        "best, last or the name of another checkpoint of the run [best]");
  c.add("--limit", a->limit, "N",
        "Evaluate the first N examples, of each segment of a mixture [all]")
      .positive();
  c.set(*a);
  c.threads();
  c.quiet(*a);
  c.json(a->json);
  c.words_to_set(*a);
  c.footer(
      "With another variant (--set attention.type=NAME), weights that both have are loaded;\n"
      "parameters that only the new one has are initialised and listed. On other data: --set\n"
      "data.task=tokens --set data.path=FILE.h5, of which only the split is read.\n"
      "A mixture is reported segment by segment: --set 'data.length=[64,128]' evaluates a model "
      "of\n"
      "mqar, copy or selective_copy at both lengths, of which the longest must be at most\n"
      "model.max_length.");
}

}  // namespace longhand::cli
