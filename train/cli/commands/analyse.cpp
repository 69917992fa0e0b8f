// longhand analyse: what a variant loses against exact attention, and what it saves.
#include "longhand/train/analyse/analyse.h"
#include "longhand/train/cli/commands/commands.h"

namespace longhand::cli {
namespace {

namespace analyse = train::analyse;

template <class Options>
struct AnalyseArguments : Common {
  Options options;
};

/// Gives the results of make(on_progress), while progress is shown.
template <class F>
auto with_progress(const Common& a, F make) {
  Waiting progress(a.quiet || a.json, chosen_command());
  return make([&](int64_t done, int64_t all, const std::string& next) {
    progress.update(done, all, next);
  });
}

// ---- analyses of queries, keys and values: random ones, or those of a run

/// The run that the command line names; nothing if it names none.
std::optional<train::LoadedRun> open_run(const Common& a, const train::RunOptions& options = {}) {
  if (a.run.empty()) return std::nullopt;
  train::SavedModel saved = train::load_model(a.run, a.checkpoint);
  if (!a.trust_paths) saved.check_paths();
  saved.accept_data = true;
  return cli::open_run(a, std::move(saved), a.quiet || a.json, options);
}

template <class Options>
using Analysis = train::Results(const Options&, const train::LoadedRun*,
                                const analyse::OnProgress&);

template <class Options>
int analyse_source(const AnalyseArguments<Options>& a, Analysis<Options> make,
                   const Shown& shown = {}) {
  Options options = a.options;
  options.seed = seed_or_default(a);
  const std::optional<train::LoadedRun> run = open_run(a);
  return finish(a,
                with_progress(a,
                              [&](const analyse::OnProgress& on_progress) {
                                return make(options, run ? &*run : nullptr, on_progress);
                              }),
                shown);
}

/// Adds the flags of the inputs.
void add_source(Command& c, Common& a, analyse::SourceOptions& options) {
  c.add("--run", a.run);
  c.common(a, "checkpoint trust_paths split");
  c.add("--length", options.length).positive();
  c.add("--count", options.count).positive();
  c.add("--norm", options.norm).not_negative();
  c.add("--head-dim", options.dim).positive();
  c.add("--correlation", options.correlation);
  c.flag("--causal", options.causal);
  c.common(a, "results seed threads quiet json");
}

void add_error(Command& group) {
  auto [c, a] = group.command<AnalyseArguments<analyse::ErrorOptions>>(
      "error", [](const auto& given) { return analyse_source(given, analyse::error); });
  c.add("--attention", a->options.attention).repeated();
  c.add("--sizes", a->options.sizes).positive();
  c.add("--draws", a->options.draws).positive();
  c.add("--landmarks", a->options.landmarks).positive();
  c.add("--steps", a->options.steps).positive();
  add_source(c, *a, a->options);
}

void add_spectrum(Command& group) {
  auto [c, a] =
      group.command<AnalyseArguments<analyse::SourceOptions>>("spectrum", [](const auto& given) {
        return analyse_source(given, analyse::spectrum, {.hidden = {"spectrum"}});
      });
  add_source(c, *a, a->options);
}

void add_kernel(Command& group) {
  auto [c, a] =
      group.command<AnalyseArguments<analyse::KernelOptions>>("kernel", [](const auto& given) {
        analyse::check_kernel(given.options);
        return analyse_source(given, analyse::kernel);
      });
  c.add("--kernel", a->options.kernel);
  c.add("--sizes", a->options.kernels.sizes).positive();
  c.add("--draws", a->options.kernels.draws).positive();
  c.add("--ensemble", a->options.kernels.ensemble).positive();
  c.flag("--keys", a->options.keys);
  add_source(c, *a, a->options);
}

// ---- others

struct LandmarkArguments : AnalyseArguments<analyse::LandmarksOptions> {
  std::optional<int64_t> tokens, dim;
};

int landmarks(const LandmarkArguments& a) {
  analyse::LandmarksOptions options = a.options;
  options.landmarks.seed = seed_or_default(a);
  if (!a.run.empty()) {
    check<ConfigError>(!a.dim && options.landmarks.norm == 0,
                       "--head-dim and --norm describe random inputs; with --run, queries and keys "
                       "are those of the model");
    options.length = a.tokens.value_or(0);
  }
  const std::optional<train::LoadedRun> run = open_run(a);
  options.landmarks.tokens = a.tokens.value_or(options.landmarks.tokens);
  options.landmarks.dim = a.dim.value_or(options.landmarks.dim);
  const train::Results results = [&] {
    const Waiting waiting(a.quiet || a.json, "analyse landmarks");
    return analyse::landmarks(options, run ? &*run : nullptr);
  }();
  return finish(a, results);
}

void add_landmarks(Command& group) {
  auto [c, a] = group.command<LandmarkArguments>("landmarks", landmarks);
  c.add("--run", a->run);
  c.common(*a, "checkpoint trust_paths split");
  c.add("--count", a->options.count).positive();
  c.add("--tokens", a->tokens).positive();
  c.add("--head-dim", a->dim).positive();
  c.add("--landmarks", a->options.landmarks.landmarks).positive();
  c.add("--draws", a->options.landmarks.draws).positive();
  c.add("--norm", a->options.landmarks.norm).not_negative();
  c.common(*a, "results seed threads quiet json");
}

int maps(const AnalyseArguments<analyse::AttentionOptions>& a) {
  analyse::AttentionOptions options = a.options;
  options.split = a.split;
  options.seed = seed_or_default(a);
  check<ConfigError>(a.run.empty() != options.attention.empty(),
                     "analyse attention: expected either the directory of a run, or variants with "
                     "--attention");
  const std::optional<train::LoadedRun> run = open_run(a);
  const auto found = with_progress(a, [&](const analyse::OnProgress& on_progress) {
    return analyse::attention(options, run ? &*run : nullptr, on_progress);
  });
  if (!a.json && !a.quiet) print_stdout("{}", found.drawn);
  return finish(a, found.results, {.hidden = {"maps"}});
}

void add_maps(Command& group) {
  auto [c, a] = group.command<AnalyseArguments<analyse::AttentionOptions>>("attention", maps);
  c.add("run", a->run);
  c.common(*a, "checkpoint split");
  c.add("--attention", a->options.attention).repeated();
  c.add("--norm", a->options.inputs.norm).not_negative();
  c.add("--head-dim", a->options.inputs.dim).positive();
  c.add("--correlation", a->options.inputs.correlation);
  c.flag("--same-keys", a->options.inputs.same_keys);
  c.flag("--state", a->options.state);
  c.flag("--causal", a->options.causal);
  c.add("--index", a->options.index).not_negative();
  c.add("--length", a->options.length).positive();
  c.add("--size", a->options.size).positive();
  c.common(*a, "results seed threads quiet json");
}

struct TaskArguments : AnalyseArguments<analyse::HeuristicsOptions> {
  std::string task;
};

int heuristics(const TaskArguments& a) {
  check<ConfigError>(!a.run.empty() || !a.task.empty(),
                     "analyse heuristics: expected a TASK or --run DIR");
  check<ConfigError>(a.run.empty() || (a.task.empty() && a.set.empty() && !a.seed),
                     "--run: the task, its options and its seed are those of the run");
  const std::optional<train::LoadedRun> run = open_run(a, {.with_training = true});
  data::Task made;
  if (!run) {
    train::Config config;
    config.assign("data", "task", a.task, "TASK");
    apply_to_data(a, config);
    data::Splits splits = data::Splits::only(a.split);
    splits.train = true;
    const Waiting waiting(a.quiet || a.json, "preparing data");
    made = train::read_task(config, splits);
  }
  analyse::HeuristicsOptions options = a.options;
  options.split = a.split;
  return finish(a, with_progress(a, [&](const analyse::OnProgress& on_progress) {
                  return analyse::heuristics(options, run ? run->experiment->task : made,
                                             run ? run->experiment.get() : nullptr, on_progress);
                }));
}

void add_heuristics(Command& group) {
  auto [c, a] = group.command<TaskArguments>("heuristics", heuristics);
  c.add("task", a->task);
  c.add("--run", a->run);
  c.common(*a, "trust_paths checkpoint split");
  c.add("--limit", a->options.limit).positive();
  c.add("--train-limit", a->options.train_limit).positive();
  c.common(*a, "set results seed threads quiet json words");
}

}  // namespace

void add_analyse(Command& program) {
  Command group = program.group("analyse");
  add_error(group);
  add_spectrum(group);
  add_landmarks(group);
  add_kernel(group);
  add_analyse_efficiency(group);
  add_maps(group);
  add_heuristics(group);
}

}  // namespace longhand::cli
