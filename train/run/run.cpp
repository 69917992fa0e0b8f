#include "longhand/train/run/run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "longhand/core/version.h"
#include "longhand/data/bytes.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/cost/bench.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

bool is_resumable(const std::string& name) {
  return std::ranges::count(resumable_options(), name) > 0;
}

/// Returns the value of an option for messages.
std::string text_of(const std::map<std::string, OptionValue>& options, const std::string& name) {
  const auto found = options.find(name);
  return found == options.end() ? "no such option" : to_string(found->second);
}

/// Throws DataError unless the checkpoint has the run's configuration, except for
/// resumable_options(), and at most as many steps as it asks for.
void check_same(const ResumePoint& from, const Config& config) {
  const std::string file = from.file.string();
  const auto ours = config.given();
  const auto theirs = Config::parse(from.checkpoint.config, file).given();
  for (const auto& [name, value] : theirs)
    check<DataError>(is_resumable(name) || text_of(ours, name) == to_string(value), file,
                     " is a checkpoint of another run: it was made with ", name, " = ",
                     to_string(value), ", but config.toml has ", text_of(ours, name));
  const auto steps = theirs.find("train.steps");
  const int64_t* const limit =
      steps == theirs.end() ? nullptr : std::get_if<int64_t>(&steps->second);
  check<DataError>(!limit || from.checkpoint.training.step <= *limit, file,
                   " is inconsistent: saved at step ", from.checkpoint.training.step,
                   " of a run of ", limit ? *limit : 0, " steps");
}

/// Returns the Summary::status of a run that ended this way.
std::string status_of(Stopped why) {
  return why == Stopped::finished ? "finished" : why == Stopped::early ? "early" : "stopped";
}

void add_warnings(std::vector<std::string>& to, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    if (std::ranges::find(to, warning) == to.end()) to.push_back(warning);
}

/// Throws ConfigError if the run takes weights from its own directory, which it will overwrite.
void check_sources_are_elsewhere(const Experiment& e, const fs::path& directory) {
  const fs::path own = fs::weakly_canonical(directory);
  for (const auto& [option, source] :
       {std::pair("train.init_from", fs::path(e.plan.train.init.from)),
        {"train.distill_from", fs::path(e.plan.train.distill.from)}}) {
    if (source.empty()) continue;
    const fs::path relative = fs::weakly_canonical(source).lexically_relative(own);
    check<ConfigError>(relative.empty() || *relative.begin() == "..", option, " = ",
                       source.string(), ": is in the directory of this run, ", directory.string(),
                       "; choose another --out");
  }
}

/// Returns, as assignments, the values of resumable_options() in which `asked` differs from the
/// configuration of a run with some steps done, unless train.steps is below those. Throws
/// ConfigError if another option differs.
std::vector<std::string> changes(const Config& of_run, const Config& asked, int64_t steps,
                                 const fs::path& directory) {
  const attention::TransformerConfig model = read_model(of_run, nullptr);
  const data::TaskInfo task{.vocabulary = model.vocabulary,
                            .classes = model.classes,
                            .per_token = model.per_token,
                            .causal = model.causal,
                            .max_length = model.max_length,
                            .targets = data::target_kind(model.targets)};
  const auto values = [](const Config& config, const data::TaskInfo& info) {
    return Config::parse(effective_config(config, &info), "config").given();
  };
  const auto ours = values(of_run, task),
             theirs = values(asked, read_task_info(asked).value_or(task));
  std::vector<std::string> out;
  for (const auto& [name, value] : theirs) {
    const std::string text = to_string(value);
    if (text_of(ours, name) == text) continue;
    check<ConfigError>(
        is_resumable(name), name, " = ", text, ", but the run in ", directory.string(), " has ",
        text_of(ours, name),
        "; use the original value, replace it with --overwrite, or choose another --out");
    // It may have been extended, and have done more steps since.
    if (name != "train.steps" || std::get<int64_t>(value) > steps) out.push_back(name + "=" + text);
  }
  return out;
}

}  // namespace

const std::vector<std::string>& resumable_options() {
  static const std::vector<std::string> names = {
      "train.steps",           "train.target_accuracy",
      "train.patience",        "train.log_every",
      "train.eval_every",      "train.eval_batches",
      "train.keep_every",      "train.checkpoint_every",
      "train.recompute",       "data.path",
      "train.hash_every",      "train.on_io_error",
      "train.on_bad_step",     "train.max_skips",
      "train.tensorboard",     "train.memory_limit",
      "train.shard_optimizer", "train.compare_every",
      "train.sequence_ranks",
  };
  return names;
}

Run::Parts Run::prepare(Config config, const RunRecord* record, const Checkpoint* checkpoint) {
  Parts out{.experiment = std::make_unique<Experiment>(std::move(config))};
  Experiment& e = *out.experiment;
  if (checkpoint) out.sources = record->sources();
  const TrainSection& options = e.plan.train;
  if (!record) {
    check_checkpoint_name(options.init.from, options.init.checkpoint, "train.init_checkpoint");
    check_checkpoint_name(options.distill.from, options.distill.checkpoint,
                          "train.distill_checkpoint");
  }
  if (!options.init.from.empty() && !checkpoint)
    out.sources.init = initialise(e.model, options.init);
  if (Teacher teacher = load_teacher(options.distill); teacher.model) {
    const auto& before = out.sources.teacher;
    check<DataError>(!before || before->digest == teacher.source.digest, teacher.source.checkpoint,
                     " has changed since this run began to learn from it: its digest is ",
                     teacher.source.digest, ", expected ", before ? before->digest : "",
                     "; restore the checkpoint, or start a new run");
    out.sources.teacher = teacher.source;
    out.loss = distilled_loss(e, std::move(teacher));
  }
  return out;
}

std::unique_ptr<Run> Run::create(Config config, const fs::path& directory, const std::string& name,
                                 Existing existing) {
  if (!directory.empty()) RunRecord::check_free(directory, existing);
  Parts parts = prepare(std::move(config), nullptr, nullptr);
  if (existing == Existing::overwrite) check_sources_are_elsewhere(*parts.experiment, directory);
  RunRecord record = RunRecord::create(
      directory.empty() ? RunRecord::fresh_path("runs", name) : directory, existing);
  return std::unique_ptr<Run>(new Run(std::move(parts), std::move(record), nullptr, false, false));
}

std::unique_ptr<Run> Run::resume(const fs::path& directory,
                                 const std::vector<std::string>& assignments, bool accept_data) {
  RunRecord record = RunRecord::open(directory);
  // Not Config::load(), which also reads pipes and would wait for one.
  Config config = Config::parse(data::read_text_file(record.config()), record.config().string());
  const std::optional<ResumePoint> from = record.resume_point();
  if (from) {
    check_same(*from, config);
    check_plugins(from->checkpoint.plugins, config, from->file.string());
  }
  for (const std::string& assignment : assignments) {
    const std::string option = assignment.substr(0, assignment.find('='));
    check<ConfigError>(is_resumable(option), "--set ", option, ": a resumed run may change only ",
                       comma_list(resumable_options()));
    config.assign(assignment);
  }
  Parts parts = prepare(std::move(config), &record, from ? &from->checkpoint : nullptr);
  return std::unique_ptr<Run>(
      new Run(std::move(parts), std::move(record), from ? &*from : nullptr, true, accept_data));
}

std::unique_ptr<Run> Run::resume_or_create(Config config, const fs::path& directory,
                                           bool accept_data) {
  if (!RunRecord::holds_run(directory)) return create(std::move(config), directory);
  std::vector<std::string> assignments;
  {
    const RecordedRun run = read_run(directory);
    assignments = changes(Config::parse(run.config, (directory / "config.toml").string()), config,
                          run.summary ? run.summary->step : 0, directory);
  }
  return resume(directory, assignments, accept_data);
}

Run::Run(Parts parts, RunRecord record, const ResumePoint* from, bool resumed, bool accept_data)
    : experiment_(std::move(parts.experiment)),
      record_(std::move(record)),
      config_(to_toml(experiment_->plan.effective)),
      resumed_(resumed),
      loader_(experiment_->loader()),
      trainer_(experiment_->model, logits_of(experiment_->model), *experiment_->optimizer,
               experiment_->schedule, loader_, experiment_->task, experiment_->options, {},
               record_.checkpoints(), config_, std::move(parts.loss)) {
  const std::string board = (path() / "tensorboard").string();
  check<ConfigError>(!experiment_->plan.train.tensorboard || !fs::is_symlink(board), board,
                     " is a link, and the events there may be of another run; remove the link, or "
                     "set train.tensorboard = false");
  summary_.sources = std::move(parts.sources);
  warnings_ = advice(*experiment_);
  if (from) resume_from(*from, accept_data);
  summary_.warnings = warnings_;
  summarise("");
  const std::optional<Stopped> ended = trainer_.ended();
  if (!from || !from->warning.empty() || !ended) return;
  std::optional<Summary> before = record_.summary();
  if (!before || before->status != status_of(*ended) || before->step != step()) return;
  finished_ = ended;
  warnings_.clear();  // warnings of training
  const EarlierMetrics metrics = record_.earlier_metrics(trainer_.state());
  if (!metrics.damage.empty()) warnings_.push_back("metrics.jsonl: " + metrics.damage);
  summary_ = std::move(*before);
}

void Run::resume_from(const ResumePoint& from, bool accept_data) {
  const Checkpoint& checkpoint = from.checkpoint;
  const std::string file = from.file.string();
  check<DataError>(!checkpoint.optimizer.empty() || experiment_->optimizer->state_dict().empty(),
                   file,
                   " has weights, but no optimizer state, as written by longhand convert; continue "
                   "with longhand train ",
                   record_.config().string(), " --init-from ", record_.path().string());
  const TrainingState& state = checkpoint.training;
  check<ConfigError>(state.step <= experiment_->options.steps,
                     "train.steps = ", experiment_->options.steps, ": ", record_.path().string(),
                     " has done ", state.step, " steps already; expected at least as many");
  const std::string other_data =
      data_difference(checkpoint.data, trainer_.data_hashes(), file, experiment_->config);
  check<DataError>(other_data.empty() || accept_data, other_data, data_remedy);
  const int64_t batches = loader_.batches_per_epoch();
  check<DataError>(state.step >= 0 && state.cursor.epoch == state.step / batches &&
                       state.cursor.batch == state.step % batches,
                   file, " does not fit the data: after ", state.step, " steps of ", batches,
                   " batches an epoch the next one is batch ", state.step % batches, " of epoch ",
                   state.step / batches, ", but the checkpoint has batch ", state.cursor.batch,
                   " of epoch ", state.cursor.epoch);
  with_file_name(file, [&] { trainer_.resume(checkpoint, from.file == record_.last()); });
  for (const std::string& warning : {from.warning, resume_warning(checkpoint), other_data,
                                     check_plugins(checkpoint.plugins, experiment_->config, file)})
    if (!warning.empty()) warnings_.push_back(warning);
}

void Run::continue_record() {
  std::optional<Summary> before = record_.summary();
  const EarlierMetrics metrics = record_.earlier_metrics(trainer_.state());
  if (before) {
    add_warnings(before->warnings, warnings_);
    summary_.warnings = std::move(before->warnings);
    summary_.processes = std::move(before->processes);
  }
  summary_.training = metrics.training;
  summary_.validation = metrics.validation;
  if (summary_.processes.empty() && metrics.step > 0) summary_.processes.emplace_back();
  summary_.add_up();
  if (!summary_.processes.empty()) {
    // A killed process may have recorded more than it summarised.
    ProcessSummary& last = summary_.processes.back();
    last.step = std::max(last.step, metrics.step);
    last.seconds += std::max(0.0, metrics.seconds - summary_.seconds);
    last.peak_memory = std::max(last.peak_memory, metrics.peak_memory);
    summary_.add_up();
    earlier_seconds_ = summary_.seconds;
    earlier_memory_ = summary_.peak_memory;
    // Before records of lost work are dropped, because their seconds count.
    summary_.processes.push_back(process_);
    summary_.status = "running";
    record_.write_summary(summary_);
  } else {
    summary_.processes.push_back(process_);
  }
  record_.cut_metrics(metrics);
  if (metrics.damage.empty()) return;
  const std::string kept = concat_message("; ", damaged_metrics, " is the file as it was");
  warn(concat_message("metrics.jsonl: ", metrics.damage,
                      fs::exists(path() / "metrics.jsonl") ? kept : ""));
}

Observer Run::observe() {
  Observer out = observer_;
  out.on_record = [this](Record record) {
    record.seconds = earlier_seconds_ + clock_seconds() - begin_;
    record.peak_memory = std::max(record.peak_memory, earlier_memory_);
    if (events_) events_->add(record);
    write_metrics([&] {
      record_.append(record);
      if (events_) events_->flush();
    });
    (record.split == "train" ? summary_.training : summary_.validation) = record;
    if (observer_.on_record) observer_.on_record(record);
  };
  out.on_progress = [this](const Progress& progress) {
    record_.keep();
    step_times_.add(progress.seconds);
    ++process_.trained;
    process_.tokens += progress.tokens;
    process_.training_seconds += progress.seconds;
    if (observer_.on_progress) observer_.on_progress(progress);
  };
  out.on_hash = [this](int64_t step, const std::string& hash) {
    write_metrics([&] { record_.append_hash(step, hash); });
    if (observer_.on_hash) observer_.on_hash(step, hash);
  };
  out.before_save = [this] {
    record_.keep();
    write_metrics([&] { record_.sync_metrics(); });
    if (observer_.before_save) observer_.before_save();
  };
  out.on_saved = [this](const fs::path& path) {
    if (path == record_.last() && clock_seconds() >= next_summary_) write_summary_so_far();
    if (observer_.on_saved) observer_.on_saved(path);
  };
  out.should_stop = [this] {
    return metrics_error_ || (observer_.should_stop && observer_.should_stop());
  };
  out.on_warning = [this](const std::string& warning) { warn(warning); };
  return out;
}

void Run::warn(const std::string& warning) {
  next_summary_ = 0;  // write it with the next last.h5
  add_warnings(summary_.warnings, {warning});
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

void Run::open_events() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const bool resumed = fs::exists(path() / "metrics.jsonl");
  events_.emplace(path() / "tensorboard",
                  resumed ? read_run(path()).metrics : std::vector<Record>(),
                  std::chrono::duration<double>(now).count() - earlier_seconds_);
}

Stopped Run::train(Observer observer, Lead* lead) {
  if (finished_) return *finished_;
  observer_ = std::move(observer);
  trainer_.observe(observe());
  if (lead && lead->world().size() > 1) {
    Start start{.config = config_,
                .folder = record_.checkpoints().string(),
                .checkpoint = std::string(data::text_of(to_bytes(trainer_.view())))};
    grid_ = lead->start(std::move(start), experiment_->options, trainer_.data_hashes());
    trainer_.join(*grid_);
  } else {
    check<ConfigError>(experiment_->options.sequence_ranks == 1,
                       "train.sequence_ranks = ", experiment_->options.sequence_ranks,
                       ": this is one process; start several with longhand-mpi, or set it to 1");
  }
  process_ = {.host = host_name(),
              .threads = threads(),
              .ranks = grid_ ? grid_->world().size() : 1,
              .begin = step(),
              .step = step()};
  if (resumed_) {
    continue_record();
    record_.write_config(config_);
  } else {
    record_.start(config_);
    summary_.processes = {process_};
  }
  const Sources& sources = summary_.sources;
  if (sources.init || sources.teacher) record_.write_sources(sources);
  begin_ = clock_seconds();
  if (experiment_->plan.train.tensorboard) write_metrics([&] { open_events(); });
  const auto finish = [&](const std::string& status) {
    write_metrics([&] {
      record_.sync_metrics();
      if (events_) events_->flush();
    });
    summarise(status);
    record_.write_summary(summary_);
  };
  Stopped why;
  try {
    why = trainer_.run();
  } catch (const DivergedError&) {
    finish("diverged");
    throw;
  }
  finish(status_of(why));
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

void Run::write_summary_so_far() {
  constexpr double interval = 5;  // seconds
  next_summary_ = clock_seconds() + interval;
  summarise("running");
  try {
    record_.write_summary(summary_);
  } catch (const DataError& error) {
    if (experiment_->options.on_io_error == "stop")
      metrics_error_ = std::current_exception();
    else
      warn(std::string("the summary is not up to date: ") + error.what());
  }
}

void Run::summarise(const std::string& status) {
  Experiment& e = *experiment_;
  Summary& s = summary_;
  s.status = status;
  s.task = e.task.info.name;
  s.length = e.task.info.max_length;
  s.attention = e.model.config().attention_name();
  s.algorithm = e.model.kernel(0).algorithm(e.model.config().max_length);
  s.step = trainer_.state().step;
  s.steps = e.options.steps;
  s.parameters = e.model.parameter_count();
  s.best_metric = e.options.best_metric;
  s.best = trainer_.state().best;
  s.best_step = trainer_.state().best_step;
  s.skipped = trainer_.state().guard.skipped;
  s.seed = e.options.step.seed;
  s.state_bytes = decoding_bytes(e.model.config());
  s.version = version();
  s.machine = machine_description();
  s.provenance = provenance();
  s.data = trainer_.data_hashes();
  s.plugins = used_plugins(e.config);
  if (status.empty()) {
    s.threads = threads();
    return;
  }
  process_.step = s.step;
  process_.step_seconds = step_times_.median();
  process_.seconds = clock_seconds() - begin_;
  process_.peak_memory = peak_resident_memory();
  s.processes.back() = process_;
  s.add_up();
}

}  // namespace longhand::train
