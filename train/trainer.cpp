#include "longhand/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "longhand/core/measure/clock.h"
#include "longhand/core/storage.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/step/cross_entropy.h"

namespace longhand::train {
namespace {

double rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

bool due(int64_t step, int64_t every) { return every > 0 && step > 0 && step % every == 0; }

/// Returns a name such as "step-00001000.h5".
std::string numbered(const char* prefix, int64_t step) {
  return fmt::format("{}{:08}.h5", prefix, step);
}

/// Throws DataError if counters are inconsistent.
void check_counters(const TrainingState& s) {
  const auto require = [](bool ok, const char* name, const auto& found, const auto& expected) {
    check<DataError>(ok, "the counters of the checkpoint are inconsistent: ", name, " is ", found,
                     ", expected ", expected);
  };
  const auto up_to = [&](const char* name, int64_t value, int64_t limit) {
    require(value >= 0 && value <= limit, name, value, concat_message("0 to ", limit));
  };
  require(s.step >= 0, "step", s.step, "at least 0");
  up_to("interval_steps", s.interval.steps, s.step);
  require(s.interval.targets >= 0, "interval_targets", s.interval.targets, "at least 0");
  up_to("interval_correct", s.interval.correct, s.interval.targets);
  up_to("evaluated_step", s.evaluated_step, s.step);
  up_to("best_step", s.best_step, s.evaluated_step);
  up_to("evaluations_since_best", s.evaluations_since_best, s.evaluated_step);
  require(s.last_accuracy >= 0 && s.last_accuracy <= 1, "last_accuracy", s.last_accuracy, "0 to 1");
}

}  // namespace

std::string hash_of(const Parameters& parameters) {
  data::Digester digester;
  for (const auto& [name, parameter] : parameters) {
    const Tensor values = parameter.value().contiguous();
    digester.update(std::as_bytes(std::span(name)));
    digester.update(values_of(values));
  }
  return data::hex(digester.digest());
}

Trainer::Trainer(nn::Module& model, LogitsFn logits, Optimizer& optimizer, const Schedule& schedule,
                 data::Loader& loader, const data::Task& task, const TrainerOptions& options,
                 Observer observer, std::filesystem::path folder, std::string config, LossFn loss)
    : model_(model),
      logits_(std::move(logits)),
      optimizer_(optimizer),
      loader_(loader),
      task_(task),
      options_(options),
      observer_(std::move(observer)),
      folder_(std::move(folder)),
      config_(std::move(config)),
      step_({.model = model,
             .loss = loss ? std::move(loss) : cross_entropy_loss(logits_, options.label_smoothing),
             .optimizer = optimizer,
             .schedule = schedule,
             .loader = loader,
             .options = options_.step,
             .on_phase =
                 [this](const char* name) {
                   if (observer_.on_phase) observer_.on_phase(name);
                 },
             .after_update =
                 [this](int64_t step) {
                   if (ema_) ema_->update(step);
                 },
             .on_defect = [this](const std::string& defect) { skip_step(defect); }}) {
  check<ConfigError>(
      options.steps >= 0 && options.step.micro_batches >= 1 && options.log_every >= 1 &&
          options.eval_batch_size >= 1,
      "trainer: expected steps >= 0 and micro_batches, log_every and eval_batch_size >= 1, got ",
      options.steps, " steps of ", options.step.micro_batches, " micro-batches, a record every ",
      options.log_every, " steps, evaluation in batches of ", options.eval_batch_size);
  check<ConfigError>(options.best_metric == "loss" || options.best_metric == "accuracy",
                     "trainer: best_metric is \"", options.best_metric,
                     "\", expected \"loss\" or \"accuracy\"");
  for (const std::string& split : task.splits())
    data_hashes_[split] = task.split(split).fingerprint();
  if (options.ema_decay > 0) ema_.emplace(step_.parameters(), options.ema_decay);
  state_.seed = options.step.seed;
  state_.cursor = loader.cursor();
}

bool Trainer::stop_requested(bool arrived) const {
  return step_.reducer().any(arrived || (observer_.should_stop && observer_.should_stop()));
}

Stopped Trainer::run() {
  for (;;) {
    const int64_t step = state_.step;
    bool best = false;
    // An evaluation prevented by a stop comes first after resuming.
    if (evaluation_due() && (stop_requested() || !evaluate_now(best))) {
      save({"last.h5"}, true);
      return Stopped::signal;
    }
    std::optional<Stopped> reason = ended();
    const bool arrived = observer_.until > 0 && step >= observer_.until;
    if (!reason && stop_requested(arrived)) reason = Stopped::signal;
    const bool asked = step_.reducer().any(observer_.should_save && observer_.should_save());
    std::vector<std::string> names;
    if (best) names.emplace_back("best.h5");
    if (reason || asked || due(step, options_.checkpoint_every)) names.emplace_back("last.h5");
    save(names, reason.has_value());
    if (reason) return *reason;

    const Step::Result result = [&] {
      try {
        return step_.take(state_);
      } catch (...) {
        loader_.seek(state_.cursor);  // so that the step can be repeated
        throw;
      }
    }();
    interval_tokens_ += result.tokens;
    interval_seconds_ += result.seconds;
    if (observer_.on_progress)
      observer_.on_progress(
          {result, state_.step, options_.steps, rate(result.tokens, result.seconds)});
    if (due(state_.step, options_.log_every) || state_.step == options_.steps) train_record(result);
    if (observer_.on_hash && due(state_.step, options_.hash_every))
      observer_.on_hash(state_.step, hash_of(step_.parameters()));
    if (due(state_.step, options_.compare_every))
      step_.reducer().compare(step_.parameters(), state_.step,
                              state_.step - options_.compare_every);  // the last comparison
    if (due(state_.step, options_.keep_every)) save({numbered("step-", state_.step)});
  }
}

void Trainer::join(const Reducer& ranks) {
  step_.join(ranks);
  if (options_.shard_optimizer) ranks.divide(optimizer_);
}

void Trainer::skip_step(const std::string& defect) {
  const GuardState& guard = state_.guard;
  if (options_.step.guard.on_bad_step == GuardOptions::Action::stop)
    throw DivergedError(defect + "; the weights are those before this step" + save_snapshot());
  if (guard.skipped_in_turn >= options_.step.guard.max_skips)
    throw DivergedError(concat_message(defect, ", and the ", guard.skipped_in_turn,
                                       " steps before it were skipped, as many as train.max_skips "
                                       "allows; the weights are those before them",
                                       save_snapshot()));
  const std::string cause = guard.skipped == 0 ? save_snapshot() : "";
  if (observer_.on_skipped) observer_.on_skipped(defect + "; its update is skipped" + cause);
}

std::string Trainer::save_snapshot() {
  if (folder_.empty()) return {};
  const std::string name = numbered("before-step-", state_.step + 1);
  try {
    save({name});
  } catch (const DataError& error) {
    return concat_message("; no snapshot was saved: ", error.what());
  }
  return concat_message("; to find the cause: longhand replay ", (folder_ / name).string());
}

bool Trainer::of_numbers() const { return task_.info.targets == data::TargetKind::numbers; }

void Trainer::report(Record record, const Metrics& metrics, int64_t tokens, double seconds) {
  record.step = state_.step;
  record.accuracy = metrics.accuracy();
  if (task_.info.bytes && task_.info.per_token)
    record.bits_per_byte = record.cross_entropy() / std::numbers::ln2;
  record.tokens_per_second = rate(tokens, seconds);
  record.peak_memory = peak_resident_memory();
  if (observer_.on_record) observer_.on_record(record);
}

void Trainer::train_record(const Step::Result& last) {
  const auto& interval = state_.interval;
  // NaN if every step was skipped.
  Record record{.split = "train", .loss = interval.loss / static_cast<double>(interval.steps)};
  for (const auto& [name, value] : interval.terms)
    record.terms[name] = value / static_cast<double>(interval.steps);
  record.learning_rate = last.learning_rate;
  record.gradient_norm = last.gradient_norm;
  record.model = model_.metrics();
  step_.reducer().of_last_batch(record.model);
  record.skipped = std::exchange(state_.guard.skipped_interval, 0);
  const Metrics metrics{.correct = interval.correct,
                        .targets = interval.targets,
                        .numbers = of_numbers() ? interval.targets : 0};
  state_.interval = {};
  report(std::move(record), metrics, std::exchange(interval_tokens_, 0),
         std::exchange(interval_seconds_, 0));
}

bool Trainer::evaluation_due() const {
  return task_.validation && task_.validation->size() > 0 && state_.step > state_.evaluated_step &&
         (due(state_.step, options_.eval_every) || state_.step == options_.steps);
}

bool Trainer::evaluate_now(bool& best) {
  const double begin = clock_seconds();
  std::optional<std::vector<SegmentMetrics>> segments;
  {
    std::optional<Ema::Swap> swap;
    if (ema_) swap.emplace(*ema_);
    segments = evaluate_segments(logits_, *task_.validation,
                                 {.batch_size = options_.eval_batch_size,
                                  .limit = options_.eval_batches * options_.eval_batch_size,
                                  .on_progress = observer_.on_evaluation,
                                  .should_stop = [this] { return stop_requested(); },
                                  .reducer = &step_.reducer()});
  }
  if (!segments) return false;
  Metrics metrics;
  for (const SegmentMetrics& segment : *segments) metrics += segment.metrics;

  const bool by_loss = options_.best_metric == "loss";
  const double value = by_loss ? metrics.loss() : metrics.accuracy();
  best = std::isfinite(value) &&
         (!state_.best || (by_loss ? value < *state_.best : value > *state_.best));
  state_.evaluated_step = state_.step;
  state_.last_accuracy = of_numbers() ? 0 : metrics.accuracy();
  ++state_.evaluations_since_best;
  if (best) {
    state_.best = value;
    state_.best_step = state_.step;
    state_.evaluations_since_best = 0;
  }

  report({.split = "validation", .loss = metrics.loss(), .best = best}, metrics, metrics.tokens,
         clock_seconds() - begin);
  return true;
}

std::optional<Stopped> Trainer::ended() const {
  if (evaluation_due()) return std::nullopt;
  if (state_.step >= options_.steps) return Stopped::finished;
  const bool patient = options_.patience <= 0 || state_.evaluations_since_best < options_.patience;
  const bool accurate = options_.target_accuracy > 0 && state_.evaluated_step > 0 &&
                        state_.last_accuracy >= options_.target_accuracy;
  return patient && !accurate ? std::nullopt : std::optional(Stopped::early);
}

Checkpoint Trainer::view() const {
  step_.check_complete();
  Checkpoint out;
  out.model = model_.state_dict();
  out.optimizer = optimizer_.state_dict();
  if (ema_) out.ema = ema_->state_dict();
  out.training = state_;
  out.config = config_;
  out.data = data_hashes_;
  if (!plugins().empty()) out.plugins = used_plugins(Config::parse(config_, "configuration"));
  return out;
}

void Trainer::resume(const Checkpoint& checkpoint, bool is_last) {
  check<DataError>(checkpoint.training.seed == options_.step.seed,
                   "the checkpoint is from a run with seed ", checkpoint.training.seed,
                   ", expected ", options_.step.seed);
  // Check everything before changing anything.
  check_counters(checkpoint.training);
  nn::check_state(model_.state_dict(), checkpoint.model, "the model");
  nn::check_state(optimizer_.state_dict(), checkpoint.optimizer, "the optimizer");
  nn::check_state(ema_ ? ema_->state_dict() : nn::StateDict{}, checkpoint.ema,
                  "the averaged weights");
  TrainingState next = checkpoint.training;
  loader_.seek(next.cursor);
  step_.change([&] {
    model_.load_state_dict(checkpoint.model);
    optimizer_.load_state_dict(checkpoint.optimizer);
    if (ema_) ema_->load_state_dict(checkpoint.ema);
    state_ = std::move(next);
  });
  saved_.reset();
  if (is_last) saved_ = state_.step;
}

void Trainer::save(const std::vector<std::string>& names, bool at_end) {
  if (folder_.empty() || names.empty()) return;
  const Checkpoint state = view();
  if (!step_.reducer().leads()) {
    if (std::ranges::count(names, "last.h5") > 0) saved_ = state_.step;
    return;
  }
  if (observer_.before_save) observer_.before_save();
  std::vector<std::byte> bytes;
  for (const std::string& name : names) {
    const std::filesystem::path path = folder_ / name;
    const bool is_last = name == "last.h5";
    try {
      if (bytes.empty()) bytes = to_bytes(state);
      // A possibly damaged file must not replace a valid one.
      const bool keep = is_last && saved_ && *saved_ != state_.step;
      data::write_file_durably(path, bytes, keep ? folder_ / "previous.h5" : "");
    } catch (const DataError& error) {
      const bool is_required = is_last && at_end;
      if (is_required || options_.on_io_error != "warn" || !observer_.on_warning) throw;
      observer_.on_warning(
          concat_message("no checkpoint was saved after step ", state_.step, ": ", error.what()));
      continue;
    }
    if (is_last) saved_ = state_.step;
    if (observer_.on_saved) observer_.on_saved(path);
  }
}

}  // namespace longhand::train
