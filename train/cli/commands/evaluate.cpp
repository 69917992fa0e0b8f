// longhand evaluate: loss and accuracy of a trained model, optionally with another attention
// variant or other data, over a grid of both, and of ensembles.
#include "longhand/core/storage.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/evaluate/ensemble.h"
#include "longhand/train/evaluate/scores.h"
#include "longhand/train/lab/drop_in.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {

void fields(Is<Metrics> auto& m, auto& f) {
  f("examples", m.examples);
  f("targets", m.targets);
  f("loss", m.loss());
  f.number("accuracy", m.accuracy());
}

void fields(Is<SegmentMetrics> auto& s, auto& f) {
  f("name", s.name);
  f.filled("length", s.length);
  fields(s.metrics, f);
}

}  // namespace longhand::train

namespace longhand::cli {
namespace {

struct EvaluateArguments : Common {
  std::vector<std::string> words;  // runs, and assignments after --set
  std::vector<std::string> runs;
  int64_t limit = 0;
  std::string grid;               // a file
  std::vector<std::string> over;  // section.key=value,value
  std::optional<int64_t> draws;
};

/// Seeds of samples: as many as --draws, starting at --seed.
std::vector<int64_t> seeds_of(const EvaluateArguments& arguments) {
  std::vector<int64_t> seeds;
  for (int64_t i = 0; i < arguments.draws.value_or(0); ++i)
    seeds.push_back(static_cast<int64_t>(seed_or_default(arguments)) + i);
  return seeds;
}

int evaluate_over_grid(const EvaluateArguments& arguments) {
  check<ConfigError>(arguments.runs.size() == 1, "--grid and --over: expected one run, got ",
                     arguments.runs.size());
  const train::SavedModel run = load_run(arguments, arguments.runs[0]);
  train::Sweep sweep = train::drop_in_grid(run, arguments.grid, arguments.over, arguments.set);
  if (arguments.draws) sweep.seeds = seeds_of(arguments);
  Progress progress(arguments.quiet || arguments.json, "evaluate", 2);
  const train::Results results =
      train::evaluate_grid(run, sweep,
                           {.split = arguments.split,
                            .limit = arguments.limit,
                            .on_progress = std::bind_front(&Progress::update, &progress)});
  progress.clear();
  // Variant labels stand for the axes' values.
  const auto readable = [&](const train::Table& table) {
    return with_intervals(without_empty_columns(without_columns(
        table, [&](size_t i) { return table.columns[i].heading.find('.') != std::string::npos; })));
  };
  return finish(arguments, results, {.hidden = {"draws"}, .readable = readable});
}

int evaluate_as_ensemble(const EvaluateArguments& arguments) {
  std::vector<train::SavedModel> runs;
  for (const std::string& run : arguments.runs) runs.push_back(load_run(arguments, run));
  Progress progress(arguments.quiet || arguments.json, "evaluate", 2);
  const train::Results results = train::evaluate_ensemble(
      std::move(runs),
      {.split = arguments.split,
       .limit = arguments.limit,
       .seeds = seeds_of(arguments),
       .set = arguments.set,
       .on_progress = [&](int64_t done, int64_t all) { progress.update(done, all, ""); }});
  progress.clear();
  return finish(arguments, results, {.readable = [](const train::Table& table) {
                  return with_intervals(without_empty_columns(table));
                }});
}

/// Reports data with longer sequences than the model was trained on. Throws ConfigError if the
/// model cannot read them. `trained` is the checkpoint's configuration. Lengths known only from
/// files are not compared.
void check_length(const train::Config& trained, const EvaluateArguments& arguments) {
  train::Config config = trained;
  for (const std::string& assignment : arguments.set) config.assign(assignment);
  const auto before = train::read_task_info(trained), now = train::read_task_info(config);
  if (!before || !now || now->max_length <= before->max_length) return;
  const int64_t longest = train::read_model(config, nullptr).max_length;
  check<ConfigError>(
      now->max_length <= longest, "the data has sequences of up to ", now->max_length,
      " tokens, but the model reads at most model.max_length = ", longest,
      "; if its positions are not learned, raise that with --set model.max_length=",
      now->max_length, ", otherwise train it with model.max_length of at least ", now->max_length);
  if (!arguments.quiet)
    print_stderr(
        "longhand: warning: the {} split has sequences of up to {} tokens, but the model was "
        "trained on at most {}: it was never trained on later positions; to compare models at this "
        "length, train them on it, or on a mixture such as data.length = [{}, {}]\n",
        arguments.split, now->max_length, before->max_length, before->max_length, now->max_length);
}

int evaluate_run(const EvaluateArguments& arguments) {
  for (const auto& [flag, value] : {std::pair{"-o", arguments.out},
                                    {"--table", arguments.table},
                                    {"--columns", comma_list(arguments.style.columns)}})
    check<ConfigError>(value.empty(), flag, " ", value,
                       ": expected --grid, --over, --draws or several runs; the result of a single "
                       "evaluation is printed, with --json as JSON");
  check<ConfigError>(!arguments.seed, "--seed: expected --draws, whose first draw it seeds");
  train::SavedModel saved = load_run(arguments, arguments.runs[0]);
  check_length(saved.config, arguments);
  const train::LoadedRun run =
      open_run(arguments, std::move(saved), arguments.quiet,
               {.weights = {.other_attention = train::changes_attention(arguments.set)}});
  const train::Experiment& experiment = *run.experiment;
  std::vector<train::SegmentMetrics> segments;
  {
    Progress progress(arguments.quiet, "evaluate", 2);
    segments = *train::evaluate_segments(train::logits_of(run.model()), *run.dataset,
                                         {.batch_size = experiment.options.eval_batch_size,
                                          .limit = arguments.limit,
                                          .on_progress = [&](const train::EvaluationProgress& p) {
                                            progress.update(p.examples, p.all_examples, "");
                                          }});
  }
  train::Metrics metrics;
  for (const train::SegmentMetrics& segment : segments) metrics += segment.metrics;
  if (segments.size() == 1) segments.clear();
  check_loss(metrics.loss(), run.source.checkpoint, arguments.split);

  const data::TaskInfo& task = experiment.task.info;
  const bool bytes = task.bytes && task.per_token;
  Answer out(arguments.json);
  out.add("checkpoint", run.source.checkpoint)
      .add("step", run.source.step)
      .add("task", task.name)
      .add("split", arguments.split)
      .add("data_hash", arguments.json ? run.dataset->fingerprint() : "")
      .add("attention", run.model().config().attention_name())
      .add(metrics)
      .add("peak_memory_bytes", peak_resident_memory());
  if (task.targets == data::TargetKind::classes) out.add("perplexity", metrics.perplexity());
  if (bytes) out.add("bits_per_byte", metrics.bits_per_byte());
  const bool numbers = task.targets == data::TargetKind::numbers,
             labels = task.targets == data::TargetKind::labels;
  if (numbers || labels) {
    const double constant = train::constant_loss(
        *run.dataset, {.batch_size = experiment.options.eval_batch_size, .limit = arguments.limit});
    out.add("constant_loss", constant);
    if (numbers)
      out.add("rmse", metrics.rmse()).add("r2", constant > 0 ? 1 - metrics.loss() / constant : 0.0);
    else
      out.add("f1", metrics.f1());
  }
  if (!segments.empty()) out.add("segments", segments);
  out.add("initialised", run.fresh.initialised).add("unused", run.fresh.unused);
  out.text(
         "checkpoint     {checkpoint} (step {step})\n"
         "data           {task}, {split}: {examples:,} examples, {targets:,} targets\n"
         "attention      {attention}\n")
      .each("initialised", "initialised    {}\n")
      .each("unused", "unused         {}\n")
      .text("loss           {loss:.6f}\n")
      .text(numbers  ? "constant loss  {constant_loss:.6f}\nrmse           {rmse:.6f}\n"
                       "R2             {r2:.6f}\n"
            : labels ? "constant loss  {constant_loss:.6f}\naccuracy       {accuracy:.6f}\n"
                       "F1 (micro)     {f1:.6f}\n"
                     : "accuracy       {accuracy:.6f}\nperplexity     {perplexity:.4f}\n");
  if (bytes) out.text("bits per byte  {bits_per_byte:.6f}\n");
  out.each(
      "segments",
      "segment        {name}: loss {loss:.6f}, accuracy {accuracy:.6f}, {targets:,} targets\n");
  return out.text("peak memory    {peak_memory_bytes:MiB} MiB\n").end();
}

int evaluate(EvaluateArguments arguments) {
  for (const std::string& word : arguments.words) {
    const bool is_run = word.find('=') == std::string::npos || fs::exists(word);
    (is_run ? arguments.runs : arguments.set).push_back(word);
  }
  check<ConfigError>(!arguments.runs.empty(), "evaluate: expected the directory of a run");
  if (!arguments.grid.empty() || !arguments.over.empty()) return evaluate_over_grid(arguments);
  if (arguments.runs.size() > 1 || arguments.draws) return evaluate_as_ensemble(arguments);
  return evaluate_run(arguments);
}

}  // namespace

void add_evaluate(Command& program) {
  auto [c, a] = program.command<EvaluateArguments>("evaluate", evaluate);
  c.add("runs", a->words).required();
  c.common(*a, "split checkpoint");
  c.add("--limit", a->limit).positive();
  c.add("--grid", a->grid);
  c.add("--over", a->over).repeated();
  c.add("--draws", a->draws).positive();
  c.add("--seed", a->seed);
  c.common(*a, "set trust_paths accept_data threads quiet json results table");
}

}  // namespace longhand::cli
