// longhand predict: a trained model's predictions, example by example.
#include "longhand/train/evaluate/predict.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/run/run_record.h"

namespace longhand::cli {
namespace {

struct PredictArguments : Common {
  std::string data;
  int64_t limit = 0;
  bool logits = false, tokens = false;
};

/// Describes the source of the predictions.
std::map<std::string, std::string> about(const PredictArguments& a, const std::string& split,
                                         const train::LoadedRun& run) {
  return {{"longhand", longhand::version()},
          {"checkpoint", run.source.checkpoint},
          {"digest", run.source.digest},
          {"step", std::to_string(run.source.step)},
          {"writer", "longhand predict"},
          {"task", run.experiment->task.info.name},
          {"split", split},
          {"values", a.logits ? "logits" : "probabilities"}};
}

int predict(PredictArguments a) {
  train::check_predictions_path(a.out);
  check<ConfigError>(!a.tokens || a.out.empty() || fs::path(a.out).extension() == ".jsonl",
                     "--tokens: expected JSON Lines, as with -o NAME.jsonl; got -o ", a.out);
  const fs::path folder = fs::path(a.out).parent_path();
  check<ConfigError>(folder.empty() || fs::is_directory(folder), "-o ", a.out,
                     ": there is no folder ", folder.string());
  check<ConfigError>(
      !a.json || !a.out.empty(),
      "--json: expected -o FILE, beside which the summary is printed; without -o the "
      "predictions are printed, as JSON Lines");
  const bool other_data = !a.data.empty();
  const bool one_file =
      other_data && !fs::is_directory(a.data) && fs::path(a.data).extension() != ".h5";
  if (other_data) a.trust_paths = true;  // the checkpoint's path is replaced
  if (one_file) a.accept_data = true;    // it may be the file that the run has split
  train::SavedModel saved = load_run(a, a.run);
  if (other_data) train::read_data_from(a.data, saved.config);
  const bool quiet = a.quiet || a.json;
  const train::LoadedRun run = open_run(a, std::move(saved), quiet, {.undivided = one_file});
  const std::string split = one_file ? "all" : a.split;
  const int64_t classes = run.model().config().classes;
  const auto& labels = run.experiment->task.info.labels;
  check<ConfigError>(
      !other_data || labels.empty() || std::ssize(labels) == classes, "--data ", a.data,
      ": its labels are ", fmt::format("{}", fmt::join(labels, ", ")), ", and the model has ",
      classes, " classes; give all labels in the order of their classes with --set data.labels=");
  const train::Predictions predictions = [&] {
    Progress progress(quiet, "predict", 2);
    const auto available = static_cast<double>(train::available_memory());
    return *train::predict(train::logits_of(run.model()), *run.dataset, a.logits,
                           {.batch_size = run.experiment->options.eval_batch_size,
                            .limit = a.limit,
                            .on_progress =
                                [&](const train::EvaluationProgress& p) {
                                  progress.update(p.examples, p.all_examples, "");
                                }},
                           [&](int64_t targets) {
                             train::check_predictions_memory(a.out, targets, classes, available);
                           });
  }();
  const train::Metrics& metrics = predictions.metrics;
  check_loss(metrics.loss(), run.source.checkpoint, split);
  const data::Dataset* const with_tokens = a.tokens ? run.dataset : nullptr;
  if (a.out.empty()) {
    write_stdout(train::to_json_lines(predictions, with_tokens));
    return success;
  }
  train::write_predictions(a.out, predictions, about(a, split, run), with_tokens);
  Answer answer(a.json);
  answer.add("checkpoint", run.source.checkpoint)
      .add("step", run.source.step)
      .add("task", run.experiment->task.info.name)
      .add("split", split)
      .add("examples", metrics.examples)
      .add("targets", metrics.targets)
      .add("classes", classes)
      .add("loss", metrics.loss())
      .add("accuracy", metrics.accuracy())
      .add("out", a.out);
  const bool numbers = metrics.numbers > 0;
  if (numbers) answer.add("rmse", metrics.rmse());
  if (!a.quiet)
    answer.text("written   {out}: {targets:,} targets of {examples:,} examples, {classes} ")
        .literal(run.model().config().targets)
        .text("\nloss      {loss:.6f}\n")
        .text(numbers ? "rmse      {rmse:.6f}\n" : "accuracy  {accuracy:.6f}\n");
  return answer.end();
}

}  // namespace

void add_predict(Command& program) {
  auto [c, a] = program.command<PredictArguments>("predict", predict);
  c.common(*a, "run");
  c.out(a->out, [](const auto& file) {
    return begins_with(file, "{\"example\": 0, \"target") ||
           begins_with(file, "{\"example\": 0, \"tokens\": [") ||
           begins_with(file, "{\"example\": 0, \"positions\": [") ||
           is_tensor_file_of(file, "longhand predict");
  });
  c.common(*a, "split");
  c.add("--data", a->data);
  c.flag("--logits", a->logits);
  c.flag("--tokens", a->tokens);
  c.common(*a, "checkpoint");
  c.add("--limit", a->limit).positive();
  c.common(*a, "set trust_paths accept_data threads quiet json words");
}

}  // namespace longhand::cli
