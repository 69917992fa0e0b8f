#include "longhand/train/trainer.h"

#include <cmath>
#include <cstdio>
#include <numbers>
#include <span>
#include <utility>

#include "longhand/core/clock.h"
#include "longhand/core/communicator.h"
#include "longhand/core/storage.h"
#include "longhand/data/file.h"
#include "longhand/train/config.h"
#include "longhand/train/distributed/gradient_join.h"
#include "longhand/train/distributed/sequence_batch.h"

namespace longhand::train {
namespace {

double rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

bool due(int64_t step, int64_t every) { return every > 0 && step > 0 && step % every == 0; }

/// Returns rows begin … end-1 of a batch.
data::Batch part(const data::Batch& batch, int64_t begin, int64_t end) {
  const auto rows = [&](const Tensor& t) { return t ? t.slice(0, begin, end) : t; };
  return {rows(batch.tokens), rows(batch.targets), rows(batch.lengths)};
}

/// "step-00001000.h5"
std::string numbered(const char* prefix, int64_t step) {
  char name[48];
  std::snprintf(name, sizeof name, "%s%08lld.h5", prefix, static_cast<long long>(step));
  return name;
}

nn::StateDict clone(const nn::StateDict& state) {
  nn::StateDict out;
  for (const auto& [name, tensor] : state) out[name] = tensor.clone();
  return out;
}

/// Throws DataError if counters contradict each other.
void check_counters(const TrainingState& s) {
  const auto require = [](bool ok, const char* name, const auto& found, const auto& expected) {
    check<DataError>(ok, "the counters of the checkpoint contradict each other: ", name, " is ",
                     found, ", expected ", expected);
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

void TrainerOptions::describe(OptionVisitor& v, int64_t batch_size) {
  v.integer("steps", steps, {1}, "total number of optimizer steps");
  v.integer(
      "shards", shards, {1},
      "number of parts of a batch that ranks share out, a power of two: any number of ranks up "
      "to it, also a power of two, gives the same bits; at most batch_size");
  v.require((shards & (shards - 1)) == 0, "shards", "expected a power of two");
  v.require(shards <= batch_size, "shards",
            concat_message("expected at most batch_size = ", batch_size));
  v.integer("micro_batches", micro_batches, {1},
            "number of micro-batches that each batch, or each shard of it, is split into, to save "
            "memory; at most batch_size / shards");
  v.require(micro_batches <= batch_size / shards, "micro_batches",
            shards == 1
                ? concat_message("expected at most batch_size = ", batch_size)
                : concat_message("expected at most batch_size / shards = ", batch_size / shards));
  v.integer(
      "sequence_ranks", sequence_ranks, {1},
      "number of ranks that each sequence is cut over, to train on longer ones: a divisor of the "
      "number of ranks; the others share out the examples");
  v.boolean(
      "shard_optimizer", shard_optimizer,
      "whether each rank keeps only its part of the optimizer's moving averages (ZeRO-1): less "
      "memory, one more message a step, the same bits");
  v.integer(
      "compare_every", compare_every, {0},
      "steps between comparisons of the parameters of all ranks, which must have the same bits; "
      "0: never");
  v.boolean(
      "recompute", recompute,
      "whether to recompute the activations of each block in the backward pass, to save memory");
  v.number("clip_norm", clip_norm, {0}, "maximum global gradient norm; 0: no clipping");
  v.number("label_smoothing", label_smoothing, {0, 1},
           "fraction of the target probability spread uniformly over all classes; training only");
  v.number(
      "ema_decay", ema_decay, NumberRange::fraction(),
      "decay of the exponential moving average of the weights, used in evaluation; 0: no average");
  v.integer("log_every", log_every, {1}, "steps between records of training metrics");
  eval_every = std::max<int64_t>(steps / 10, 1);
  v.integer("eval_every", eval_every, {0}, "steps between evaluations; 0: only after the last step",
            "steps / 10");
  eval_batch_size = batch_size;
  v.integer("eval_batch_size", eval_batch_size, {1}, "examples per batch in evaluation",
            "batch_size");
  v.integer("eval_batches", eval_batches, {0}, "validation batches per evaluation; 0: all");
  v.choice("best_metric", best_metric, {"loss", "accuracy"},
           "validation metric that selects the best checkpoint");
  v.integer("patience", patience, {0},
            "number of evaluations without improvement after which training stops; 0: never");
  v.number("target_accuracy", target_accuracy, {0, 1},
           "validation accuracy at which training stops; 0: never");
  checkpoint_every = eval_every;
  v.integer("checkpoint_every", checkpoint_every, {0},
            "steps between updates of last.h5; 0: only at the end and when stopped", "eval_every");
  v.integer("keep_every", keep_every, {0},
            "steps between checkpoints that are kept as step-N.h5; 0: none");
  v.integer("hash_every", hash_every, {0},
            "steps between hashes of all parameters in metrics.jsonl, which are equal in runs that "
            "give the same bits; 0: none");
  v.choice(
      "on_io_error", on_io_error, {"warn", "stop"},
      "what happens if metrics or a checkpoint cannot be written: warn, train on and try again "
      "with the next, or save what can be saved and stop");
  guard.describe(v);
}

std::string hash_of(const Parameters& parameters) {
  data::Digester digester;
  for (const auto& [name, parameter] : parameters) {
    const Tensor values = parameter.value().contiguous();
    digester.update(std::as_bytes(std::span(name)));
    dispatch_any(values.dtype(), [&]<class T>() {
      digester.update(
          std::as_bytes(std::span(values.data<T>(), static_cast<size_t>(values.numel()))));
    });
  }
  return data::hex(digester.digest());
}

/// Puts integer buffers back to their values at construction, unless keep() is called: forward passes
/// count in them, and a step that was not taken must not be counted.
class Trainer::Counting {
 public:
  explicit Counting(std::vector<Tensor>& counters) : counters_(counters) {
    for (const Tensor& counter : counters) before_.push_back(counter.clone());
  }
  ~Counting() { restore(); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  void keep() { before_.clear(); }
  const std::vector<Tensor>& before() const { return before_; }
  void restore() {
    for (size_t i = 0; i < before_.size(); ++i)
      std::copy_n(before_[i].data<int64_t>(), before_[i].numel(), counters_[i].data<int64_t>());
  }

 private:
  std::vector<Tensor>& counters_;
  std::vector<Tensor> before_;
};

struct Trainer::StepResult {
  double loss, learning_rate, gradient_norm, seconds;
  int64_t tokens;
};

Trainer::Trainer(nn::Module& model, LogitsFn logits, Optimizer& optimizer, const Schedule& schedule,
                 data::Loader& loader, const data::Task& task, const TrainerOptions& options,
                 Observer observer, std::filesystem::path folder, std::string config, LossFn loss)
    : model_(model),
      logits_(std::move(logits)),
      loss_(loss ? std::move(loss) : cross_entropy_loss(logits_, options.label_smoothing)),
      optimizer_(optimizer),
      schedule_(schedule),
      loader_(loader),
      task_(task),
      options_(options),
      observer_(std::move(observer)),
      folder_(std::move(folder)),
      config_(std::move(config)),
      parameters_(optimizer.parameters()) {
  check<ConfigError>(
      options.steps >= 0 && options.micro_batches >= 1 && options.log_every >= 1 &&
          options.eval_batch_size >= 1,
      "trainer: expected steps >= 0 and micro_batches, log_every and eval_batch_size >= 1, got ",
      options.steps, " steps of ", options.micro_batches, " micro-batches, a record every ",
      options.log_every, " steps, evaluation in batches of ", options.eval_batch_size);
  check<ConfigError>(options.best_metric == "loss" || options.best_metric == "accuracy",
                     "trainer: best_metric is \"", options.best_metric,
                     "\", expected \"loss\" or \"accuracy\"");
  for (const std::string& split : task.splits())
    data_hashes_[split] = task.split(split).fingerprint();
  if (options.ema_decay > 0) ema_.emplace(parameters_, options.ema_decay);
  for (const auto& [name, tensor] : model.state_dict())
    if (tensor.dtype() == DType::i64) counters_.push_back(tensor);
  state_.seed = options.seed;
  state_.cursor = loader.cursor();
}

bool Trainer::stop_requested() const {
  return grid_->world().any(observer_.should_stop && observer_.should_stop());
}

bool Trainer::save_requested() const {
  return grid_->world().any(observer_.should_save && observer_.should_save());
}

void Trainer::check_complete() const {
  check(!incomplete_,
        "trainer: an exception interrupted an update, so the state is incomplete; resume from a "
        "checkpoint");
}

Stopped Trainer::run() {
  for (;;) {
    const int64_t step = state_.step;
    // An evaluation prevented by a stop is done first after resuming.
    if (evaluation_due() && (stop_requested() || !evaluate_now())) {
      save_last(true);
      return Stopped::signal;
    }
    std::optional<Stopped> reason = ended();
    if (!reason && stop_requested()) reason = Stopped::signal;
    const bool asked = save_requested();
    if (reason || asked || due(step, options_.checkpoint_every)) save_last(reason.has_value());
    if (reason) return *reason;

    const StepResult result = [&] {
      try {
        return train_step();
      } catch (...) {
        loader_.seek(state_.cursor);  // so that the step can be repeated
        throw;
      }
    }();
    if (observer_.on_progress)
      observer_.on_progress({state_.step, options_.steps, result.loss, result.learning_rate,
                             rate(result.tokens, result.seconds), result.seconds, result.tokens});
    if (due(state_.step, options_.log_every) || state_.step == options_.steps) train_record(result);
    if (observer_.on_hash && due(state_.step, options_.hash_every))
      observer_.on_hash(state_.step, hash_of(parameters_));
    if (due(state_.step, options_.compare_every)) compare_ranks();
    if (due(state_.step, options_.keep_every)) save_as(numbered("step-", state_.step));
  }
}

void Trainer::join(const RankGrid& grid) {
  grid_ = &grid;
  if (options_.shard_optimizer) optimizer_.share(grid.world());
}

std::vector<Trainer::Piece> Trainer::pieces(int64_t rows) const {
  const int64_t shards = std::min(options_.shards, rows), ranks = grid_->data().size(),
                rank = grid_->data().rank();
  std::vector<Piece> out;
  for (int64_t shard = rank * shards / ranks; shard < (rank + 1) * shards / ranks; ++shard) {
    const int64_t begin = shard * rows / shards, n = (shard + 1) * rows / shards - begin;
    const int64_t micro_batches = std::min(options_.micro_batches, n);
    for (int64_t micro = 0; micro < micro_batches; ++micro)
      out.push_back({begin + micro * n / micro_batches, begin + (micro + 1) * n / micro_batches,
                     shard * options_.micro_batches + micro, micro + 1 == micro_batches, false});
  }
  if (!out.empty()) out.back().last = true;
  return out;
}

Loss Trainer::loss_of(const data::Batch& batch, const BatchSize& size, const Piece& piece) const {
  const Generator random = Generator(options_.seed).fork("train").fork(state_.step);
  nn::Pass pass = nn::Pass::train(random.fork(piece.number));
  pass.recompute = options_.recompute;
  const auto own = attention::SequencePart::of(grid_->sequence(), batch.tokens.size(1));
  Loss loss = loss_(part_of(part(batch, piece.begin, piece.end), *own), size,
                    attention::over_part(pass, own));
  if (own->cut() && batch.targets.rank() == 1) {
    // Every rank has the loss of whole sequences, and contributes its share.
    const double share = 1.0 / grid_->sequence().size();
    loss.value = loss.value * share;
    for (auto& [name, term] : loss.terms) term *= share;
    if (loss.unsmoothed) *loss.unsmoothed *= share;
    if (grid_->sequence().rank() > 0) loss.correct = 0;
  }
  return loss;
}

Trainer::Computed Trainer::compute_step() {
  check_complete();
  model_.zero_grad();  // gradients of earlier computations with the model
  const data::Batch batch = loader_.next();
  const BatchSize size = size_of(batch);
  TreeSum sum, shard;  // of shards, and of the micro-batches of one
  std::optional<GradientJoin> join;
  if (grid_->world().size() > 1) join.emplace(parameters_, *grid_);
  for (const Piece& piece : pieces(size.sequences)) {
    phase("forward");
    const Loss loss = loss_of(batch, size, piece);
    phase("backward");
    Contribution contribution{{}, loss.recorded(), loss.correct, loss.terms};
    if (join && piece.last) {
      send_gradients(loss.value, shard, sum, *join);
      contribution.gradients.resize(parameters_.size());  // they are in `join`
    } else {
      backward(loss.value);
      contribution.gradients = take_gradients(parameters_);
    }
    shard.add(std::move(contribution));
    if (piece.ends_shard) sum.add(shard.finish());
  }
  Contribution total = sum.finish();
  if (join) {
    phase("wait");
    join_losses(total);
    total.gradients = join->finish();
  }
  return {std::move(total), size};
}

// A gradient leaves as soon as the last backward pass of this rank has completed it.
void Trainer::send_gradients(const Variable& loss, TreeSum& shard, TreeSum& sum,
                             GradientJoin& join) {
  Variables watched;
  for (const auto& [name, parameter] : parameters_) watched.push_back(parameter);
  std::vector<bool> added(parameters_.size());
  const auto add = [&](size_t i) {
    Tensor gradient = shard.last_gradient(i, take_gradient(parameters_[i].second));
    join.add(i, sum.last_gradient(i, std::move(gradient)));
    added[i] = true;
  };
  backward(loss, {}, watched, add);
  for (size_t i = 0; i < added.size(); ++i)
    if (!added[i]) add(i);
}

void Trainer::join_losses(Contribution& total) const {
  std::vector<double> values{total.loss};
  for (const auto& [name, value] : total.terms) values.push_back(value);
  Tensor losses = Tensor::from(values, {std::ssize(values)});
  Tensor correct = Tensor::full({1}, 0, DType::i64);
  *correct.data<int64_t>() = total.correct;
  for (Communicator* const ranks : {&grid_->sequence(), &grid_->data()}) {
    ranks->sum(losses);
    ranks->sum(correct);
  }
  const double* value = losses.data<double>();
  total.loss = *value++;
  for (auto& [name, term] : total.terms) term = *value++;
  total.correct = *correct.data<int64_t>();
}

Trainer::StepResult Trainer::train_step() {
  const double begin = clock_seconds();
  const int64_t t = state_.step;
  Counting counting(counters_);
  const auto [total, size] = compute_step();
  join_counters(counting);
  phase("update");
  const double lr = schedule_.at(t);
  const double norm = global_norm(total.gradients);
  const std::string wrong = defect(options_.guard, state_.guard, total.loss, norm);
  TrainingState next = state_;
  next.step = t + 1;
  next.cursor = loader_.cursor();
  if (wrong.empty()) {
    accept(options_.guard, next.guard, total.loss, norm);
    ++next.interval.steps;
    next.interval.loss += total.loss;
    next.interval.correct += total.correct;
    next.interval.targets += size.targets;
    for (const auto& [name, value] : total.terms) next.interval.terms[name] += value;
    incomplete_ = true;
    optimizer_.step(lr, total.gradients, clip_scale(norm, options_.clip_norm));
    model_.after_step();
    if (ema_) ema_->update(t + 1);
    incomplete_ = false;
    counting.keep();
  } else {
    counting.restore();  // before a snapshot is saved
    skip_step(concat_message("step ", t + 1, ": ", wrong, ", at learning rate ", lr));
    skip(next.guard);
  }
  phase("end");
  state_ = std::move(next);
  const StepResult result{total.loss, lr, norm, clock_seconds() - begin, size.tokens};
  interval_tokens_ += result.tokens;
  interval_seconds_ += result.seconds;
  return result;
}

// Each rank has counted in its own forward passes.
void Trainer::join_counters(const Counting& counting) {
  if (grid_->data().size() == 1) return;
  for (size_t i = 0; i < counters_.size(); ++i) {
    const int64_t n = counters_[i].numel();
    Tensor added = counters_[i].clone();
    int64_t* const count = counters_[i].data<int64_t>();
    const int64_t* const before = counting.before()[i].data<int64_t>();
    for (int64_t j = 0; j < n; ++j) added.data<int64_t>()[j] -= before[j];
    grid_->data().sum(added);
    for (int64_t j = 0; j < n; ++j) count[j] = before[j] + added.data<int64_t>()[j];
  }
}

// Those of the rank whose pass is the last one of a single process.
std::map<std::string, double> Trainer::joined_metrics() const {
  std::map<std::string, double> out = model_.metrics();
  if (grid_->world().size() == 1 || out.empty()) return out;
  std::vector<double> own;
  for (const auto& [name, value] : out) own.push_back(value);
  const Tensor all = grid_->world().all_gather(Tensor::from(own, {std::ssize(own)}));
  const int last = grid_->world().size() - grid_->sequence().size();
  const double* value = all.select(0, last).data<double>();
  for (auto& [name, entry] : out) entry = *value++;
  return out;
}

void Trainer::compare_ranks() {
  Communicator& world = grid_->world();
  if (world.size() == 1) return;
  const auto difference = first_difference(world, hash_of(parameters_));
  if (!difference) return;
  const std::vector<std::string> hosts = world.gather(host_name());
  const int64_t equal = state_.step - options_.compare_every;  // the step of the last comparison
  const std::string remedy =
      equal > 0
          ? concat_message("resume without it, from a checkpoint of step ", equal, " or before")
          : std::string("start again without it");
  throw Error(concat_message(
      "step ", state_.step, ": the parameters of ",
      rank_name(difference->rank, hosts[static_cast<size_t>(difference->rank)]), " have the hash ",
      difference->found, ", those of ", rank_name(0, hosts[0]), " ", difference->expected,
      ", but they must be equal: one of these machines computes or transmits wrongly; ", remedy));
}

void Trainer::skip_step(const std::string& defect) {
  const GuardState& guard = state_.guard;
  if (options_.guard.on_bad_step == GuardOptions::Action::stop)
    throw DivergedError(defect + "; the weights are those before this step" + save_snapshot());
  if (guard.skipped_in_turn >= options_.guard.max_skips)
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
    save_as(name);
  } catch (const DataError& error) {
    return concat_message("; no snapshot was saved: ", error.what());
  }
  return concat_message("; to find the cause: longhand replay ", (folder_ / name).string());
}

void Trainer::train_record(const StepResult& last) {
  const auto& interval = state_.interval;
  Record record;
  record.step = state_.step;
  record.split = "train";
  // NaN if every step was skipped.
  record.loss = interval.loss / static_cast<double>(interval.steps);
  record.accuracy = Metrics{.correct = interval.correct, .targets = interval.targets}.accuracy();
  for (const auto& [name, value] : interval.terms)
    record.terms[name] = value / static_cast<double>(interval.steps);
  if (task_.info.bytes && task_.info.per_token)
    record.bits_per_byte = record.cross_entropy() / std::numbers::ln2;
  record.learning_rate = last.learning_rate;
  record.gradient_norm = last.gradient_norm;
  record.tokens_per_second = rate(interval_tokens_, interval_seconds_);
  record.peak_memory = peak_resident_memory();
  record.model = joined_metrics();
  record.skipped = std::exchange(state_.guard.skipped_interval, 0);
  state_.interval = {};
  interval_tokens_ = 0;
  interval_seconds_ = 0;
  if (observer_.on_record) observer_.on_record(record);
}

bool Trainer::evaluation_due() const {
  return task_.validation && task_.validation->size() > 0 && state_.step > state_.evaluated_step &&
         (due(state_.step, options_.eval_every) || state_.step == options_.steps);
}

bool Trainer::evaluate_now() {
  const double begin = clock_seconds();
  std::optional<Metrics> metrics;
  {
    std::optional<Ema::Swap> swap;
    if (ema_) swap.emplace(*ema_);
    metrics = evaluate(logits_, *task_.validation,
                       {.batch_size = options_.eval_batch_size,
                        .limit = options_.eval_batches * options_.eval_batch_size,
                        .on_progress = observer_.on_evaluation,
                        .should_stop = [this] { return stop_requested(); },
                        .ranks = &grid_->data(),
                        .sequence_ranks = &grid_->sequence()});
  }
  if (!metrics) return false;

  const bool by_loss = options_.best_metric == "loss";
  const double value = by_loss ? metrics->loss() : metrics->accuracy();
  const bool best = std::isfinite(value) &&
                    (!state_.best || (by_loss ? value < *state_.best : value > *state_.best));
  state_.evaluated_step = state_.step;
  state_.last_accuracy = metrics->accuracy();
  ++state_.evaluations_since_best;
  if (best) {
    state_.best = value;
    state_.best_step = state_.step;
    state_.evaluations_since_best = 0;
  }

  Record record;
  record.step = state_.step;
  record.split = "validation";
  record.loss = metrics->loss();
  record.accuracy = metrics->accuracy();
  if (task_.info.bytes && task_.info.per_token) record.bits_per_byte = metrics->bits_per_byte();
  record.tokens_per_second = rate(metrics->tokens, clock_seconds() - begin);
  record.peak_memory = peak_resident_memory();
  record.best = best;
  if (observer_.on_record) observer_.on_record(record);
  if (best) save_as("best.h5");
  return true;
}

std::optional<Stopped> Trainer::ended() const {
  if (evaluation_due()) return std::nullopt;
  if (state_.step >= options_.steps) return Stopped::finished;
  if (ends_early()) return Stopped::early;
  return std::nullopt;
}

bool Trainer::ends_early() const {
  return (options_.patience > 0 && state_.evaluations_since_best >= options_.patience) ||
         (options_.target_accuracy > 0 && state_.evaluated_step > 0 &&
          state_.last_accuracy >= options_.target_accuracy);
}

Checkpoint Trainer::view() const {
  check_complete();
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

Checkpoint Trainer::checkpoint() const {
  Checkpoint out = view();
  for (nn::StateDict* state : {&out.model, &out.optimizer, &out.ema}) *state = clone(*state);
  return out;
}

void Trainer::resume(const Checkpoint& checkpoint, bool is_last) {
  check<DataError>(checkpoint.training.seed == options_.seed,
                   "the checkpoint is of a run with seed ", checkpoint.training.seed, ", expected ",
                   options_.seed);
  // Everything is checked before anything changes.
  check_counters(checkpoint.training);
  nn::check_state(model_.state_dict(), checkpoint.model, "the model");
  nn::check_state(optimizer_.state_dict(), checkpoint.optimizer, "the optimizer");
  nn::check_state(ema_ ? ema_->state_dict() : nn::StateDict{}, checkpoint.ema,
                  "the averaged weights");
  TrainingState next = checkpoint.training;
  loader_.seek(next.cursor);
  incomplete_ = true;
  model_.load_state_dict(checkpoint.model);
  optimizer_.load_state_dict(checkpoint.optimizer);
  if (ema_) ema_->load_state_dict(checkpoint.ema);
  state_ = std::move(next);
  incomplete_ = false;
  saved_.reset();
  if (is_last) saved_ = state_.step;
}

void Trainer::save_last(bool at_end) {
  // A file that may be damaged must not take the place of one that is valid.
  const bool keep = saved_ && *saved_ != state_.step;
  save_as("last.h5", at_end, keep ? folder_ / "previous.h5" : std::filesystem::path());
}

void Trainer::save_as(const std::string& name, bool is_required,
                      const std::filesystem::path& keep_old_as) {
  if (folder_.empty()) return;
  const Checkpoint state = view();
  if (!grid_->leads()) {
    if (name == "last.h5") saved_ = state_.step;
    return;
  }
  if (observer_.before_save) observer_.before_save();
  const std::filesystem::path path = folder_ / name;
  try {
    save(path, state, keep_old_as);
  } catch (const DataError& error) {
    const bool go_on = !is_required && options_.on_io_error == "warn" && observer_.on_warning;
    if (!go_on) throw;
    observer_.on_warning(
        concat_message("no checkpoint was saved after step ", state_.step, ": ", error.what()));
    return;
  }
  if (name == "last.h5") saved_ = state_.step;
  if (observer_.on_saved) observer_.on_saved(path);
}

}  // namespace longhand::train
