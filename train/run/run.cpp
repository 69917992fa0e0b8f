#include "longhand/train/run/run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "longhand/core/version.h"
#include "longhand/train/bench.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

bool is_resumable(const std::string& name) {
  const auto& names = resumable_options();
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Throws DataError unless the checkpoint was made with the run's configuration, except for
/// resumable_options(), and after at most as many steps as it asks for.
void check_same(const ResumePoint& from, const Config& config) {
  const std::string file = from.file.string();
  const auto ours = config.given();
  const auto theirs = Config::parse(from.checkpoint.config, file).given();
  for (const auto& [name, value] : theirs) {
    if (is_resumable(name)) continue;
    const auto found = ours.find(name);
    check<DataError>(found != ours.end() && found->second == value, file,
                     " is a checkpoint of another run: it was made with ", name, " = ",
                     to_string(value), ", but config.toml has ",
                     found == ours.end() ? "no such option" : to_string(found->second));
  }
  const auto steps = theirs.find("train.steps");
  const int64_t* const limit =
      steps == theirs.end() ? nullptr : std::get_if<int64_t>(&steps->second);
  check<DataError>(!limit || from.checkpoint.training.step <= *limit, file,
                   " contradicts itself: it is of step ", from.checkpoint.training.step,
                   " of a run of ", limit ? *limit : 0, " steps");
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::map<std::string, std::string> hashes(const data::Task& task) {
  std::map<std::string, std::string> out;
  for (const std::string& split : task.splits())
    out[split] = data::content_hash(task.split(split), examples_hashed);
  return out;
}

void assign(Config& config, const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    const std::string name = assignment.substr(0, assignment.find('='));
    std::string allowed;
    for (const std::string& option : resumable_options())
      allowed += (allowed.empty() ? "" : ", ") + option;
    check<ConfigError>(is_resumable(name), "--set ", name, ": a resumed run may change only ",
                       allowed);
    config.assign(assignment);
  }
}

}  // namespace

const std::vector<std::string>& resumable_options() {
  static const std::vector<std::string> names = {
      "train.steps",       "train.target_accuracy",  "train.patience",
      "train.log_every",   "train.eval_every",       "train.eval_batches",
      "train.keep_every",  "train.checkpoint_every", "train.recompute",
      "data.path",         "train.hash_every",       "train.on_io_error",
      "train.on_bad_step", "train.max_skips",        "train.memory_limit",
  };
  return names;
}

Run::Parts Run::prepare(Config config, const RunRecord* record, const Checkpoint* checkpoint) {
  Parts out{.experiment = std::make_unique<Experiment>(std::move(config))};
  Experiment& e = *out.experiment;
  if (checkpoint) out.sources = record->sources();
  if (!e.init.from.empty() && !checkpoint)
    out.sources.init = initialise(e.model, e.effective.at("model"), e.init);
  if (!e.distill.from.empty()) {
    Teacher teacher = load_teacher(e.distill);
    const auto& before = out.sources.teacher;
    check<DataError>(!before || before->digest == teacher.source.digest, teacher.source.checkpoint,
                     " has changed since this run began to learn from it: its digest is ",
                     teacher.source.digest, ", expected ", before ? before->digest : "",
                     "; restore the checkpoint, or start a new run");
    out.sources.teacher = teacher.source;
    out.distillation = std::make_unique<Distillation>(
        std::move(teacher.model), e.model, e.task.info, e.distill, e.options.label_smoothing);
  }
  return out;
}

std::unique_ptr<Run> Run::create(Config config, const fs::path& directory,
                                 const std::string& name) {
  if (!directory.empty()) RunRecord::check_free(directory);
  Parts parts = prepare(std::move(config), nullptr, nullptr);
  const std::string text = to_toml(parts.experiment->effective);
  RunRecord record =
      RunRecord::create(directory.empty() ? RunRecord::fresh_path("runs", name) : directory);
  record.write_config(text);
  return std::unique_ptr<Run>(new Run(std::move(parts), std::move(record), nullptr, false));
}

std::unique_ptr<Run> Run::resume(const fs::path& directory,
                                 const std::vector<std::string>& assignments) {
  RunRecord record = RunRecord::open(directory);
  Config config = Config::load(record.config());
  const std::optional<ResumePoint> from = record.resume_point();
  if (from) check_same(*from, config);
  assign(config, assignments);
  Parts parts = prepare(std::move(config), &record, from ? &from->checkpoint : nullptr);
  return std::unique_ptr<Run>(
      new Run(std::move(parts), std::move(record), from ? &*from : nullptr, true));
}

Run::Run(Parts parts, RunRecord record, const ResumePoint* from, bool resumed)
    : experiment_(std::move(parts.experiment)),
      distillation_(std::move(parts.distillation)),
      record_(std::move(record)),
      config_(to_toml(experiment_->effective)),
      resumed_(resumed),
      loader_(experiment_->loader()),
      trainer_(experiment_->model, logits_of(experiment_->model), *experiment_->optimizer,
               experiment_->schedule, loader_, experiment_->task, experiment_->options, observe(),
               record_.checkpoints(), config_, loss()) {
  summary_.sources = std::move(parts.sources);
  if (from) resume_from(*from);
  summarise("", 0);
}

void Run::resume_from(const ResumePoint& from) {
  const Checkpoint& checkpoint = from.checkpoint;
  const std::string file = from.file.string();
  check<DataError>(!checkpoint.optimizer.empty() || experiment_->optimizer->state_dict().empty(),
                   file,
                   " has weights, but no state of an optimizer, as longhand convert writes it; "
                   "continue with longhand train ",
                   record_.config().string(), " --init-from ", record_.path().string());
  const TrainingState& state = checkpoint.training;
  check<ConfigError>(state.step <= experiment_->options.steps,
                     "train.steps = ", experiment_->options.steps, ": ", record_.path().string(),
                     " has done ", state.step, " steps already; expected at least as many");
  const int64_t batches = loader_.batches_per_epoch();
  check<DataError>(state.step >= 0 && state.cursor.epoch == state.step / batches &&
                       state.cursor.batch == state.step % batches,
                   file, " does not fit the data: after ", state.step, " steps of ", batches,
                   " batches an epoch the next one is batch ", state.step % batches, " of epoch ",
                   state.step / batches, ", but the checkpoint has batch ", state.cursor.batch,
                   " of epoch ", state.cursor.epoch);
  try {
    trainer_.resume(checkpoint, from.file == record_.last());
  } catch (const DataError& error) {
    throw DataError(file + ": " + error.what());
  }
  for (const std::string& warning : {from.warning, resume_warning(checkpoint)})
    if (!warning.empty()) warnings_.push_back(warning);
  summary_.warnings = warnings_;
}

Run::~Run() = default;

LossFn Run::loss() { return distillation_ ? distillation_->function() : LossFn(); }

Observer Run::observe() {
  Observer out;
  out.on_record = [this](Record record) {
    record.seconds = earlier_seconds_ + seconds_since(begin_);
    write_metrics([&] { record_.append(record); });
    (record.split == "train" ? summary_.training : summary_.validation) = record;
    if (observer_.on_record) observer_.on_record(record);
  };
  out.on_progress = [this](const Progress& progress) {
    step_times_.add(progress.seconds);
    if (observer_.on_progress) observer_.on_progress(progress);
  };
  out.on_evaluation = [this](const EvaluationProgress& progress) {
    if (observer_.on_evaluation) observer_.on_evaluation(progress);
  };
  out.on_hash = [this](int64_t step, const std::string& hash) {
    write_metrics([&] { record_.append_hash(step, hash); });
    if (observer_.on_hash) observer_.on_hash(step, hash);
  };
  out.before_save = [this] {
    write_metrics([&] { record_.sync_metrics(); });
    if (observer_.before_save) observer_.before_save();
  };
  out.on_skipped = [this](const std::string& reason) {
    if (observer_.on_skipped) observer_.on_skipped(reason);
  };
  out.on_saved = [this](const fs::path& path) {
    if (observer_.on_saved) observer_.on_saved(path);
  };
  out.should_stop = [this] {
    return metrics_error_ || (observer_.should_stop && observer_.should_stop());
  };
  out.should_save = [this] { return observer_.should_save && observer_.should_save(); };
  out.on_warning = [this](const std::string& warning) { warn(warning); };
  return out;
}

void Run::warn(const std::string& warning) {
  std::vector<std::string>& all = summary_.warnings;
  if (std::find(all.begin(), all.end(), warning) == all.end()) all.push_back(warning);
  if (observer_.on_warning) observer_.on_warning(warning);
}

template <class F>
void Run::write_metrics(F&& f) {
  try {
    f();
    metrics_failed_ = false;
  } catch (const DataError& error) {
    if (experiment_->options.on_io_error == "stop")
      metrics_error_ = std::current_exception();
    else if (!metrics_failed_)
      warn(concat_message("metrics up to step ", step(), " are not written yet: ", error.what()));
    metrics_failed_ = true;
  }
}

Stopped Run::train(Observer observer) {
  observer_ = std::move(observer);
  if (resumed_) {
    record_.cut_metrics(trainer_.state());
    earlier_seconds_ = record_.last_seconds();
    std::vector<std::string> warnings = record_.earlier_warnings();
    for (const std::string& warning : warnings_)
      if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
        warnings.push_back(warning);
    summary_.warnings = std::move(warnings);
    record_.write_config(config_);
  }
  record_.keep();
  const Sources& sources = summary_.sources;
  if (sources.init || sources.teacher) record_.write_sources(sources);
  begin_ = std::chrono::steady_clock::now();
  const auto finish = [&](const std::string& status) {
    write_metrics([&] { record_.sync_metrics(); });
    summarise(status, seconds_since(begin_));
    record_.write_summary(summary_);
  };
  Stopped why;
  try {
    why = trainer_.run();
  } catch (const DivergedError&) {
    finish("diverged");
    throw;
  }
  finish(why == Stopped::finished ? "finished" : why == Stopped::early ? "early" : "stopped");
  if (metrics_error_ && (metrics_failed_ || why == Stopped::signal)) {
    try {
      std::rethrow_exception(metrics_error_);
    } catch (const DataError& error) {
      throw DataError(concat_message(error.what(), "; training was stopped after step ", step(),
                                     " and its state saved; continue with --resume"));
    }
  }
  return why;
}

void Run::summarise(const std::string& status, double seconds) {
  Experiment& e = *experiment_;
  Summary& s = summary_;
  s.status = status;
  s.task = e.task.info.name;
  s.attention = e.model.config().attention_name();
  s.algorithm = e.model.kernel(0).algorithm(e.model.config().max_length);
  s.step = trainer_.state().step;
  s.steps = e.options.steps;
  s.parameters = e.model.parameter_count();
  s.best_metric = e.options.best_metric;
  s.best = trainer_.state().best;
  s.best_step = trainer_.state().best_step;
  s.skipped = trainer_.state().guard.skipped;
  s.seed = e.seed;
  s.seconds = seconds;
  s.step_seconds = step_times_.median();
  s.threads = threads();
  s.peak_memory = peak_resident_memory();
  s.state_bytes = decoding_bytes(e.model.config());
  s.version = version();
  s.machine = machine_description();
  if (!status.empty()) s.data = hashes(e.task);
}

}  // namespace longhand::train
