// longhand train: starts or resumes a run, using train/run/run.h.
#include "longhand/core/communicator.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/ranks/places.h"
#include "longhand/train/run/process.h"
#include "longhand/train/run/run.h"

namespace longhand::cli {
namespace {

struct TrainArguments : Common {
  std::string config;  // for a new run
  std::string resume;  // or the directory of a run to resume
  std::string init_from, distill_from;
  bool resume_or_start = false, overwrite = false;
  bool estimate = false;
  int64_t until = 0;
};

std::string describe(const train::Record& record) {
  std::string text = fmt::format("loss {:.4f}", record.loss);
  if (!std::isnan(record.accuracy)) text += fmt::format("  accuracy {:.4f}", record.accuracy);
  if (record.bits_per_byte) text += fmt::format("  bits/byte {:.4f}", *record.bits_per_byte);
  return text;
}

/// Prints the progress of the trainer.
class Reporter {
 public:
  explicit Reporter(bool quiet) : progress_(quiet, "train") {}

  train::Observer observer() {
    train::Observer out;
    out.on_record = [this](const train::Record& record) {
      if (record.split != "train")
        say(fmt::format("step {}  {} {}{}", record.step, record.split, describe(record),
                        record.best ? "  (best)" : ""));
    };
    out.on_skipped = [this](const std::string& reason) { say("longhand: " + reason); };
    out.on_progress = [this](const train::Progress& p) {
      now_ = p;
      progress_.update(
          p.step, p.steps,
          fmt::format("loss {:.4f}  {} tokens/s", p.loss, short_number(p.tokens_per_second)));
    };
    out.on_evaluation = [this](const train::EvaluationProgress& p) {
      progress_.update(now_.step, now_.steps,
                       fmt::format("evaluating, {} of {} batches", p.batches, p.all_batches));
    };
    out.on_warning = [this](const std::string& warning) { warn(warning); };
    return out;
  }

  void warn(const std::string& warning) { say("longhand: warning: " + warning); }
  void say(const std::string& line) { progress_.line(line); }

 private:
  Progress progress_;
  train::Progress now_;
};

train::Config configuration(const TrainArguments& a) {
  check<ConfigError>(!a.config.empty(),
                     "train: expected CONFIG.toml or --resume DIR; see longhand train --help");
  train::Config config = train::Config::load(a.config);
  apply(a, config);
  if (!a.init_from.empty()) config.assign("train", "init_from", a.init_from, "--init-from");
  if (!a.distill_from.empty())
    config.assign("train", "distill_from", a.distill_from, "--distill-from");
  return config;
}

/// Prints the run's estimated memory; an error if it exceeds the limit.
int print_estimate(const TrainArguments& a) {
  const train::MemoryRequest request = [&] {
    const Waiting waiting(a.quiet, "preparing data");
    return train::memory_request(configuration(a));
  }();
  const train::MemoryEstimate estimate = train::estimate_memory(request);
  const train::MemoryLimit limit = train::memory_limit(request);
  const auto parts = train::memory_parts(estimate, limit);
  Json bytes_of = Json::object();
  train::Table table{.name = "memory", .title = "Estimated memory"};
  for (const auto& [part, bytes] : parts) {
    bytes_of[part] = static_cast<int64_t>(std::min(std::round(bytes), 9e18));
    add_row(table, {{"part", part}, {"size", train::bytes_text(bytes)}});
  }
  Answer(a.json).add("unit", "bytes").add("memory", bytes_of).table(table).end();
  train::check_memory(request);
  return success;
}

std::unique_ptr<train::Run> start(const TrainArguments& a) {
  const auto waiting = [&] { return Waiting(a.quiet, "preparing data and model"); };
  if (!a.resume.empty()) {
    check<ConfigError>(!a.seed, "--seed: the seed of a resumed run cannot change");
    const Waiting wait = waiting();
    return train::Run::resume(a.resume, a.set, a.accept_data);
  }
  check<ConfigError>(!a.out.empty() || !(a.resume_or_start || a.overwrite),
                     a.overwrite ? "--overwrite" : "--resume-or-start",
                     ": expected --out DIR, which names the run");
  const train::Config config = configuration(a);
  const Waiting wait = waiting();
  if (a.resume_or_start) return train::Run::resume_or_create(config, a.out, a.accept_data);
  return train::Run::create(config, a.out, fs::path(a.config).stem().string(),
                            a.overwrite ? train::Existing::overwrite : train::Existing::refuse);
}

/// Prints what was taken from other runs.
void introduce_sources(const train::Sources& sources, const train::DistillOptions& distill,
                       bool begins, Reporter& reporter) {
  if (sources.init && begins) {
    const auto& [source, tensors] = *sources.init;
    reporter.say(fmt::format("initialised from {} (step {}): {} tensors taken, {} new, {} unused",
                             source.checkpoint, source.step, tensors.taken.size(),
                             tensors.initialised.size(), tensors.unused.size()));
    for (const auto& [what, names] : {std::pair{"taken", &tensors.taken},
                                      {"new", &tensors.initialised},
                                      {"unused", &tensors.unused}})
      if (!names->empty()) reporter.say(fmt::format("  {}: {}", what, train::short_list(*names)));
  }
  if (sources.teacher)
    reporter.say(
        fmt::format("learning from {} (step {}): logits {} at temperature {}, outputs {}, "
                    "weights {}",
                    sources.teacher->checkpoint, sources.teacher->step, distill.logits,
                    distill.temperature, distill.outputs, distill.weights));
}

void introduce(train::Run& run, Reporter& reporter) {
  const train::Summary& s = run.summary();
  const std::string threads =
      (ranks().size() == 1 ? "" : fmt::format("{} ranks of ", ranks().size())) +
      counted(s.threads, "thread");
  reporter.say(fmt::format("{}: {}, {} attention, {} parameters, {}", run.path().string(), s.task,
                           s.attention, with_commas(s.parameters), threads));
  if (!s.algorithm.empty()) reporter.say("attention computes " + s.algorithm);
  const train::MemoryEstimate& memory = run.experiment().memory;
  reporter.say(train::memory_line(memory, train::machine_memory()));
  if (const double needed = memory.total() + train::program_memory,
      available = static_cast<double>(train::available_memory());
      needed > available)
    reporter.warn(
        fmt::format("the estimated memory is {}, of which other processes leave {}: end some of "
                    "them, or reduce it with train.micro_batches and train.eval_batch_size",
                    train::bytes_text(needed), train::bytes_text(available)));
  for (const std::string& warning : run.warnings()) reporter.warn(warning);
  introduce_sources(s.sources, run.experiment().plan.train.distill, run.step() == 0, reporter);
  if (run.resumed()) reporter.say(fmt::format("resuming after step {}", run.step()));
}

/// Runs as a rank led by another one.
int follow() {
  train::SignalRequests signals;
  const auto why = train::follow(ranks(), {.should_stop = [&] { return signals.stop(); },
                                           .should_save = [&] { return signals.take_save(); }});
  return why == train::Stopped::signal ? stopped : success;
}

int train(const TrainArguments& arguments) {
  if (arguments.estimate) return print_estimate(arguments);
  const std::vector<std::string> binding = train::binding_warnings(ranks());
  if (ranks().rank() > 0) return follow();
  train::Lead lead(ranks());
  const auto run = start(arguments);
  const train::Experiment& experiment = run->experiment();
  report_ignored(experiment.config.ignored(experiment.plan.effective), arguments.quiet);
  Reporter reporter(arguments.quiet);
  if (!run->is_finished()) {
    introduce(*run, reporter);
    for (const std::string& warning : binding) reporter.warn(warning);
  } else {
    for (const std::string& warning : run->warnings()) reporter.warn(warning);
  }

  train::SignalRequests signals;
  train::Observer observer = reporter.observer();
  observer.should_stop = [&] { return signals.stop(); };
  observer.should_save = [&] { return signals.take_save(); };
  observer.until = arguments.until;
  const train::Stopped why = run->train(std::move(observer), &lead);
  const train::Summary& summary = run->summary();
  if (arguments.json) {
    Json out = Json::parse(to_json(summary));
    out["run"] = run->path().string();
    print_json(out);
  } else if (why != train::Stopped::signal) {
    std::string best;
    if (summary.best)
      best = fmt::format("; best validation {} {:.4f} after step {}", summary.best_metric,
                         *summary.best, summary.best_step);
    print_stdout_if_possible(
        "{}{} after {} steps, {}{}; peak memory {} MiB; {}\n", run->is_finished() ? "already " : "",
        why == train::Stopped::finished ? "finished" : "stopped early", summary.step,
        duration(summary.seconds), best, summary.peak_memory >> 20, one_line(run->path().string()));
    if (run->is_finished())
      reporter.say(
          why == train::Stopped::finished
              ? fmt::format("nothing was changed; to train longer: {} train --resume {} --set "
                            "train.steps={}",
                            program_words(), shell_word(run->path().string()), 2 * summary.steps)
              : "nothing was changed; train.patience or train.target_accuracy has ended this run");
  }
  if (why != train::Stopped::signal) return success;
  reporter.say("");
  print_stderr("longhand: stopped after step {} and saved; continue with: {} train --resume {}\n",
               summary.step, program_words(), run->path().string());
  return stopped;
}

}  // namespace

void add_train(Command& program) {
  auto [c, a] = program.command<TrainArguments>("train", train);
  const Argument config = c.add("config", a->config);
  Argument resume = c.add("--resume", a->resume);
  resume.also(fmt::format(" {}", fmt::join(train::resumable_options(), ", ")));
  resume.excludes(config);
  c.add("--out", a->out).excludes(resume);
  Argument go_on = c.flag("--resume-or-start", a->resume_or_start);
  go_on.excludes(resume);
  c.flag("--overwrite", a->overwrite).excludes(resume).excludes(go_on);
  c.add("--init-from", a->init_from).excludes(resume);
  c.add("--distill-from", a->distill_from).excludes(resume);
  c.common(*a, "accept_data");
  c.add("--until", a->until).positive();
  c.flag("--estimate", a->estimate).excludes(resume);
  c.responds_to_signals();
  c.runs_on_ranks();
  c.common(*a, "set seed threads quiet json words");
}

}  // namespace longhand::cli
