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

/// Returns the results of make(on_progress) while showing progress.
template <class F>
auto with_progress(const Common& a, F make) {
  Waiting progress(a.quiet || a.json, chosen_command());
  return make(std::bind_front(&Waiting::update, &progress));
}

// ---- analyses of queries, keys and values: random, or from a run

/// Opens the run that the command line names; nothing if it names none.
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
int analyse_source(AnalyseArguments<Options> a, Analysis<Options> make, const Shown& shown = {}) {
  a.options.seed = seed_or_default(a);
  const std::optional<train::LoadedRun> run = open_run(a);
  return finish(a,
                with_progress(a,
                              [&](const analyse::OnProgress& on_progress) {
                                return make(a.options, run ? &*run : nullptr, on_progress);
                              }),
                shown);
}

/// Adds the flags for the inputs.
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

// ---- others

struct LandmarkArguments : AnalyseArguments<analyse::LandmarksOptions> {
  std::optional<int64_t> tokens, dim;
};

int landmarks(LandmarkArguments a) {
  analyse::LandmarksOptions& options = a.options;
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
  return finish(a, with_progress(a, [&](const analyse::OnProgress&) {
                  return analyse::landmarks(options, run ? &*run : nullptr);
                }));
}

struct EfficiencyArguments : AnalyseArguments<analyse::EfficiencyOptions> {
  int64_t tokens = 4096;
  double seconds = 0.3;
};

/// Measured in a child process; nothing if it failed.
std::optional<train::Cost> measure(const EfficiencyArguments& a, const analyse::PlannedCost& p,
                                   int& code) {
  std::vector<std::string> more = {"--model", a.options.model, "--seed",
                                   std::to_string(seed_or_default(a))};
  const auto set = [&](const std::string& assignment) {
    more.insert(more.end(), {"--set", "attention." + assignment});
  };
  if (!p.option.empty()) set(p.option + "=" + std::to_string(p.size));
  if (a.options.naive && p.attention == "softmax") set("impl=naive");
  const auto found = bench_in_child(a.options.what, {p.attention, p.length},
                                    std::max(a.tokens, p.length), a.seconds, more, code);
  if (!found) return {};
  const Json& json = *found;
  const double batch = json["batch"].get<double>();
  const auto of_one = [&](const char* key) { return json[key].get<double>() / batch; };
  return train::Cost{p.attention,
                     p.size,
                     p.length,
                     of_one("seconds"),
                     of_one("seconds_low"),
                     of_one("seconds_high"),
                     of_one("seconds_forward"),
                     of_one("allocated_bytes")};
}

int efficiency(const EfficiencyArguments& a) {
  check<ConfigError>(a.options.what == "attention" || a.options.what == "step", "--what ",
                     a.options.what, ": expected attention or step");
  const std::vector<analyse::PlannedCost> planned = analyse::planned_costs(a.options);
  Progress progress(a.quiet || a.json, "analyse efficiency", 2);
  std::vector<train::Cost> costs;
  int worst = success;
  for (size_t i = 0; i < planned.size(); ++i) {
    const analyse::PlannedCost& p = planned[i];
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(planned.size()),
                    fmt::format("{}{} {}", p.attention,
                                p.size ? fmt::format(" {}={}", p.option, p.size) : "", p.length));
    int code = success;
    if (const auto cost = measure(a, p, code))
      costs.push_back(*cost);
    else if (code == usage_error)
      return code;
    else
      worst = failure;
  }
  progress.clear();
  check(!costs.empty(), "analyse efficiency: no measurement succeeded");
  const int code = finish(a, analyse::efficiency(a.options, costs));
  return worst == success ? code : worst;
}

int maps(AnalyseArguments<analyse::AttentionOptions> a) {
  a.options.split = a.split;
  a.options.seed = seed_or_default(a);
  check<ConfigError>(a.run.empty() != a.options.attention.empty(),
                     "analyse attention: expected either the directory of a run, or variants with "
                     "--attention");
  const std::optional<train::LoadedRun> run = open_run(a);
  const auto found = with_progress(a, [&](const analyse::OnProgress& on_progress) {
    return analyse::attention(a.options, run ? &*run : nullptr, on_progress);
  });
  if (!a.json && !a.quiet) print_stdout("{}", found.drawn);
  return finish(a, found.results, {.hidden = {"maps"}});
}

struct TaskArguments : AnalyseArguments<data::HeuristicOptions> {
  std::string task;
};

int heuristics(TaskArguments a) {
  a.options.split = a.split;
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
  return finish(a, with_progress(a, [&](const analyse::OnProgress& on_progress) {
                  return analyse::heuristics(a.options, run ? run->experiment->task : made,
                                             run ? run->experiment.get() : nullptr, on_progress);
                }));
}

}  // namespace

void add_analyse(Command& program) {
  auto [error, e] = program.command<AnalyseArguments<analyse::ErrorOptions>>(
      "analyse error", [](const auto& given) { return analyse_source(given, analyse::error); });
  error.add("--attention", e->options.attention).repeated();
  error.add("--sizes", e->options.sizes).positive();
  error.add("--draws", e->options.draws).positive();
  error.add("--landmarks", e->options.landmarks).positive();
  error.add("--steps", e->options.steps).positive();
  add_source(error, *e, e->options);

  auto [spectrum, s] = program.command<AnalyseArguments<analyse::SourceOptions>>(
      "analyse spectrum", [](const auto& given) {
        return analyse_source(given, analyse::spectrum, {.hidden = {"spectrum"}});
      });
  add_source(spectrum, *s, s->options);

  auto [chosen, l] = program.command<LandmarkArguments>("analyse landmarks", landmarks);
  chosen.add("--run", l->run);
  chosen.common(*l, "checkpoint trust_paths split");
  chosen.add("--count", l->options.count).positive();
  chosen.add("--tokens", l->tokens).positive();
  chosen.add("--head-dim", l->dim).positive();
  chosen.add("--landmarks", l->options.landmarks.landmarks).positive();
  chosen.add("--draws", l->options.landmarks.draws).positive();
  chosen.add("--norm", l->options.landmarks.norm).not_negative();
  chosen.common(*l, "results seed threads quiet json");

  auto [kernel, k] = program.command<AnalyseArguments<analyse::KernelOptions>>(
      "analyse kernel", [](const auto& given) {
        analyse::check_kernel(given.options);
        return analyse_source(given, analyse::kernel);
      });
  kernel.add("--kernel", k->options.kernel);
  kernel.add("--sizes", k->options.kernels.sizes).positive();
  kernel.add("--draws", k->options.kernels.draws).positive();
  kernel.add("--ensemble", k->options.kernels.ensemble).positive();
  kernel.flag("--keys", k->options.keys);
  add_source(kernel, *k, k->options);

  auto [costs, f] = program.command<EfficiencyArguments>("analyse efficiency", efficiency);
  costs.add("--what", f->options.what);
  costs.add("--model", f->options.model);
  costs.add("--attention", f->options.attention);
  costs.add("--sizes", f->options.sizes).positive();
  costs.add("--length", f->options.length).positive();
  costs.add("--tokens", f->tokens).positive();
  costs.add("--seconds", f->seconds).not_negative();
  costs.flag("--naive", f->options.naive);
  costs.common(*f, "results seed threads quiet json");

  auto [drawn, m] =
      program.command<AnalyseArguments<analyse::AttentionOptions>>("analyse attention", maps);
  drawn.add("run", m->run);
  drawn.common(*m, "checkpoint split");
  drawn.add("--attention", m->options.attention).repeated();
  drawn.add("--norm", m->options.inputs.norm).not_negative();
  drawn.add("--head-dim", m->options.inputs.dim).positive();
  drawn.add("--correlation", m->options.inputs.correlation);
  drawn.flag("--same-keys", m->options.inputs.same_keys);
  drawn.flag("--state", m->options.state);
  drawn.flag("--causal", m->options.causal);
  drawn.add("--index", m->options.index).not_negative();
  drawn.add("--length", m->options.length).positive();
  drawn.add("--size", m->options.size).positive();
  drawn.common(*m, "results seed threads quiet json");

  auto [simple, h] = program.command<TaskArguments>("analyse heuristics", heuristics);
  simple.add("task", h->task);
  simple.add("--run", h->run);
  simple.common(*h, "trust_paths checkpoint split");
  simple.add("--limit", h->options.limit).positive();
  simple.add("--train-limit", h->options.train_limit).positive();
  simple.common(*h, "set results seed threads quiet json words");
}

}  // namespace longhand::cli
