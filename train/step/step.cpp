#include "longhand/train/step/step.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"

namespace longhand::train {
namespace {

/// Restores integer buffers to their values at construction, unless keep() is called: forward
/// passes count in them, and a step that is not taken must not be counted.
class Counting {
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

}  // namespace

/// A part of a batch that is processed at once.
struct Step::Piece {
  int64_t begin, end;     // rows
  int64_t number;         // index within the batch
  bool ends_shard, last;  // last of its shard, and of this process
};

Step::Step(StepContext context)
    : context_(std::move(context)), parameters_(context_.optimizer.parameters()) {
  for (const auto& [name, tensor] : context_.model.state_dict())
    if (tensor.dtype() == DType::i64) counters_.push_back(tensor);
}

Step::Result Step::take(TrainingState& state) {
  const double begin = clock_seconds();
  Counting counting(counters_);
  const auto [total, size] = compute(state.step);  // batch, forward, loss, backward
  reducer_->add_counts(counters_, counting.before());
  phase("update");
  const StepOptions& options = context_.options;
  const double lr = context_.schedule.at(state.step);
  const double norm = global_norm(total.gradients);
  TrainingState next = state;
  ++next.step;
  next.cursor = context_.loader.cursor();
  // A dry run has no values to judge.
  const std::string wrong = is_dry() ? "" : judge(options.guard, next.guard, total.sums.loss, norm);
  if (wrong.empty()) {
    ++next.interval.steps;
    next.interval.targets += size.targets;
    next.interval += total.sums;
    change([&] {
      context_.optimizer.step(lr, total.gradients, clip_scale(norm, options.clip_norm));
      context_.model.after_step();
      if (context_.after_update) context_.after_update(next.step);
    });
    counting.keep();
  } else {
    counting.restore();  // before a snapshot is saved
    context_.on_defect(concat_message("step ", next.step, ": ", wrong, ", at learning rate ", lr));
  }
  phase("end");
  state = std::move(next);
  return {total.sums.loss, lr, norm, clock_seconds() - begin, size.tokens};
}

Step::Computed Step::compute(int64_t step) {
  check_complete();
  context_.model.zero_grad();  // discard gradients of earlier computations
  const data::Batch batch = context_.loader.next();
  const BatchSize size = size_of(batch);
  TreeSum sum, shard;  // of shards, and of one shard's micro-batches
  const std::unique_ptr<GradientSum> join = reducer_->gradient_sum(parameters_);
  for (const Piece& piece : pieces(size.sequences)) {
    phase("forward");
    const Loss loss = loss_of(batch, size, piece, step);
    phase("backward");
    Contribution contribution{{}, {loss.recorded(), loss.correct, loss.terms}};
    if (join && piece.last) {
      join->backward(loss.value, shard, sum);
      contribution.gradients.resize(parameters_.size());  // already in `join`
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
    reducer_->add_losses(total.sums);
    total.gradients = join->finish();
  }
  return {std::move(total), size};
}

std::vector<Step::Piece> Step::pieces(int64_t rows) const {
  const StepOptions& options = context_.options;
  const auto [index, of] = reducer_->share();
  const int64_t shards = std::min(options.shards, rows);
  std::vector<Piece> out;
  for (int64_t shard = index * shards / of; shard < (index + 1) * shards / of; ++shard) {
    const int64_t begin = shard * rows / shards, n = (shard + 1) * rows / shards - begin;
    const int64_t micro_batches = std::min(options.micro_batches, n);
    for (int64_t micro = 0; micro < micro_batches; ++micro)
      out.push_back({begin + micro * n / micro_batches, begin + (micro + 1) * n / micro_batches,
                     shard * options.micro_batches + micro, micro + 1 == micro_batches, false});
  }
  if (!out.empty()) out.back().last = true;
  return out;
}

Loss Step::loss_of(const data::Batch& batch, const BatchSize& size, const Piece& piece,
                   int64_t step) const {
  const Generator random = Generator(context_.options.seed).fork("train").fork(step);
  nn::Pass pass = nn::Pass::train(random.fork(piece.number));
  pass.recompute = context_.options.recompute;
  const data::Batch rows = batch.examples(piece.begin, piece.end);
  const data::Batch own = reducer_->tokens_of(rows, pass);
  Loss loss = context_.loss(own, size, pass);
  reducer_->keep_share(loss, rows);
  return loss;
}

void Step::change(const std::function<void()>& f) {
  incomplete_ = true;
  f();
  incomplete_ = false;
}

void Step::check_complete() const {
  check(!incomplete_,
        "trainer: an exception interrupted an update, so the state is incomplete; resume from a "
        "checkpoint");
}

}  // namespace longhand::train
