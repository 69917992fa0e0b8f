// longhand train: a new run, or the rest of one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/cli/signals.h"
#include "longhand/train/experiment.h"
#include "longhand/train/run_directory.h"

namespace longhand::cli {
namespace {

namespace fs = std::filesystem;

/// What a run that goes on may change: how long it goes on, what it reports, and where data lies.
constexpr std::array resumable = {
    "train.steps",      "train.target_accuracy",  "train.patience",
    "train.log_every",  "train.eval_every",       "train.eval_batches",
    "train.keep_every", "train.checkpoint_every", "train.recompute",
    "data.path",
};

/// runs/CONFIG-DATE-TIME, with a number behind it if that is taken.
fs::path default_directory(const std::string& config) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  const fs::path first = fs::path("runs") / (fs::path(config).stem().string() + "-" + time);
  fs::path path = first;
  for (int n = 2; fs::exists(path); ++n) path = first.string() + "-" + std::to_string(n);
  return path;
}

std::string describe(const train::Record& record) {
  std::string text = fmt::format("loss {:.4f}  accuracy {:.4f}", record.loss, record.accuracy);
  if (record.bits_per_byte) text += fmt::format("  bits/byte {:.4f}", *record.bits_per_byte);
  return text;
}

/// Hands what the trainer tells to the run directory and to the person who waits.
class Reporter {
 public:
  Reporter(const train::RunDirectory& run, Progress::Mode mode, int64_t evaluation_batches)
      : run_(run), progress_(mode, "train"), evaluation_batches_(evaluation_batches) {}

  train::Observer observer() {
    train::Observer out;
    out.on_record = [this](const train::Record& record) { on_record(record); };
    out.on_progress = [this](const train::Progress& progress) { on_progress(progress); };
    out.should_save = take_save_request;
    out.should_stop = [this] {
      between_batches();
      return stop_requested();
    };
    return out;
  }

  void say(const std::string& line) { progress_.line(line); }

  std::optional<train::Record> training, validation;

 private:
  void on_record(const train::Record& record) {
    run_.append(record);
    (record.split == "train" ? training : validation) = record;
    if (record.split != "train")
      say(fmt::format("step {}  {} {}{}", record.step, record.split, describe(record),
                      record.best ? "  (best)" : ""));
  }

  void on_progress(const train::Progress& p) {
    now_ = p;
    asked_ = 0;
    progress_.update(
        p.step, p.steps,
        fmt::format("loss {:.4f}  {} tokens/s", p.loss, short_number(p.tokens_per_second)));
  }

  /// The trainer asks once or twice between steps, and then before each batch of an evaluation.
  void between_batches() {
    if (++asked_ > 2 && evaluation_batches_ > 0)
      progress_.update(now_.step, now_.steps,
                       fmt::format("evaluating, {} of {} batches",
                                   std::min(asked_ - 2, evaluation_batches_), evaluation_batches_));
  }

  const train::RunDirectory& run_;
  Progress progress_;
  int64_t evaluation_batches_;
  int64_t asked_ = 0;
  train::Progress now_;
};

int64_t evaluation_batches(const train::Experiment& e) {
  if (!e.task.validation) return 0;
  const int64_t size = e.options.eval_batch_size;
  const int64_t all = (e.task.validation->size() + size - 1) / size;
  return e.options.eval_batches > 0 ? std::min(all, e.options.eval_batches) : all;
}

/// What a training run starts from.
struct Start {
  train::Config config;
  std::optional<train::RunDirectory> run;  // of a run that goes on
  std::optional<train::Checkpoint> checkpoint;
};

Start start_new(const TrainArguments& arguments) {
  check<ConfigError>(!arguments.config.empty(),
                     "train wants a CONFIG.toml, or --resume DIR (see longhand train --help)");
  if (!arguments.out.empty()) train::RunDirectory::check_free(arguments.out);
  Start start{train::Config::load(arguments.config), {}, {}};
  apply(arguments, start.config);
  return start;
}

bool is_resumable(const std::string& name) {
  return std::find(resumable.begin(), resumable.end(), name) != resumable.end();
}

/// Throws DataError unless the checkpoint was made with the run's configuration, but for what may
/// change.
void check_same(const train::RunDirectory& run, const train::Config& config,
                const train::Checkpoint& checkpoint) {
  const auto ours = config.given();
  const auto theirs = train::Config::parse(checkpoint.config, run.last().string()).given();
  for (const auto& [name, value] : theirs) {
    if (is_resumable(name)) continue;
    const auto found = ours.find(name);
    check<DataError>(found != ours.end() && found->second == value, run.last().string(),
                     " is a checkpoint of another run: it was made with ", name, " = ",
                     to_string(value), ", and config.toml says ",
                     found == ours.end() ? "nothing of it" : to_string(found->second));
  }
}

Start start_again(const TrainArguments& arguments) {
  check<ConfigError>(!arguments.seed, "--seed cannot change in a run that goes on");
  Start start{{}, train::RunDirectory::open(arguments.resume), {}};
  const train::RunDirectory& run = *start.run;
  start.config = train::Config::load(run.config());
  if (fs::exists(run.last())) {  // else the run ended before anything was saved
    start.checkpoint = train::load(run.last());
    check_same(run, start.config, *start.checkpoint);
  }
  for (const std::string& assignment : arguments.set) {
    const std::string name = assignment.substr(0, assignment.find('='));
    check<ConfigError>(is_resumable(name), "--set ", name, ": a run that goes on may change only ",
                       fmt::format("{}", fmt::join(resumable, ", ")));
    start.config.assign(assignment);
  }
  return start;
}

std::unique_ptr<train::Experiment> make(const train::Config& config, bool quiet) {
  const Waiting waiting(Progress::mode_for_stderr(quiet), "making data and model");
  return std::make_unique<train::Experiment>(config);
}

train::Summary summarise(train::Experiment& e, const train::Trainer& trainer,
                         const Reporter& reporter) {
  train::Summary s;
  s.task = e.task.info.name;
  s.attention = e.model.config().attention;
  s.algorithm = e.model.kernel(0).algorithm(e.model.config().max_length);
  s.step = trainer.state().step;
  s.steps = e.options.steps;
  s.parameters = e.model.parameter_count();
  s.training = reporter.training;
  s.validation = reporter.validation;
  s.best_metric = e.options.best_metric;
  s.best = trainer.state().best;
  s.best_step = trainer.state().best_step;
  s.seed = e.seed;
  s.threads = threads();
  s.peak_memory = peak_resident_memory();
  return s;
}

}  // namespace

int train(const TrainArguments& arguments) {
  Start start = arguments.resume.empty() ? start_new(arguments) : start_again(arguments);
  const auto experiment = make(start.config, arguments.quiet);
  report_ignored(start.config, arguments.quiet);
  const std::string config = start.config.to_toml();

  train::RunDirectory run =
      start.run
          ? std::move(*start.run)
          : train::RunDirectory::create(arguments.out.empty() ? default_directory(arguments.config)
                                                              : fs::path(arguments.out),
                                        config);
  Reporter reporter(run, Progress::mode_for_stderr(arguments.quiet),
                    evaluation_batches(*experiment));
  data::Loader loader = experiment->loader();
  train::Trainer trainer(experiment->model, train::logits_of(experiment->model),
                         *experiment->optimizer, experiment->schedule, loader, experiment->task,
                         experiment->options, reporter.observer(), run.checkpoints(), config);
  reporter.say(fmt::format("{}: {}, {} attention, {} parameters, {} threads", run.path().string(),
                           experiment->task.info.name, experiment->model.config().attention,
                           with_commas(experiment->model.parameter_count()), threads()));
  attention::Variant& kernel = experiment->model.kernel(0);
  if (const auto how = kernel.algorithm(experiment->model.config().max_length); !how.empty())
    reporter.say("attention computes " + how);
  if (!arguments.resume.empty()) {
    if (start.checkpoint) {
      trainer.resume(*start.checkpoint);
      const std::string warning = train::resume_warning(*start.checkpoint);
      if (!warning.empty()) reporter.say("longhand: " + warning);
      start.checkpoint.reset();
    }
    run.cut_metrics(trainer.state().step);
    run.write_config(config);
    reporter.say(fmt::format("going on after step {}", trainer.state().step));
  }
  run.keep();
  catch_signals();

  const auto begin = std::chrono::steady_clock::now();
  const auto finish = [&](const std::string& status) {
    train::Summary summary = summarise(*experiment, trainer, reporter);
    summary.status = status;
    summary.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    run.write_summary(summary);
    return summary;
  };
  train::Stopped why;
  try {
    why = trainer.run();
  } catch (const DivergedError&) {
    finish("diverged");
    throw;
  }
  const train::Summary summary = finish(why == train::Stopped::finished ? "finished"
                                        : why == train::Stopped::early  ? "early"
                                                                        : "stopped");
  if (arguments.json) {
    Json out = Json::parse(to_json(summary));
    out["run"] = run.path().string();
    print_json(out);
  } else if (why != train::Stopped::signal) {
    std::string best;
    if (summary.best)
      best = fmt::format("; best validation {} {:.4f} after step {}", summary.best_metric,
                         *summary.best, summary.best_step);
    fmt::print("{} after {} steps, {}{}; peak memory {} MiB; {}\n",
               why == train::Stopped::finished ? "finished" : "stopped early", summary.step,
               duration(summary.seconds), best, summary.peak_memory >> 20, run.path().string());
  }
  if (why != train::Stopped::signal) return success;
  reporter.say("");
  fmt::print(stderr,
             "longhand: stopped after step {} and saved; go on with: longhand train --resume {}\n",
             summary.step, run.path().string());
  return stopped;
}

}  // namespace longhand::cli
