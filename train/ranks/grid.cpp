#include "longhand/train/ranks/grid.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/view.h"
#include "longhand/train/ranks/rank_division.h"
#include "longhand/train/step/loss.h"
#include "longhand/train/trainer.h"

namespace longhand::train {
namespace {

/// Returns columns begin … begin + n - 1 of x (B, N); columns from N on are `behind`.
Tensor columns(const Tensor& x, int64_t begin, int64_t n, int32_t behind) {
  const int64_t N = x.size(1), first = std::min(begin, N), last = std::min(begin + n, N);
  if (last - first == n) return x.slice(1, first, last);
  Tensor out = Tensor::full({x.size(0), n}, behind, x.dtype());
  copy_into(out.slice(1, 0, last - first), x.slice(1, first, last));
  return out;
}

}  // namespace

RankGrid::~RankGrid() = default;

RankGrid::RankGrid(Communicator& world, int64_t sequence_ranks, int64_t shards) : world_(world) {
  const int64_t ranks = world.size();
  check<ConfigError>(ranks % sequence_ranks == 0, "train.sequence_ranks = ", sequence_ranks,
                     ": expected a divisor of the number of ranks, ", ranks);
  const int64_t rows = ranks / sequence_ranks;
  std::vector<std::string> possible;
  for (int64_t rows_of = 1; rows_of <= shards; rows_of *= 2)
    possible.push_back(std::to_string(rows_of * sequence_ranks));
  check<ConfigError>(rows <= shards && shards % rows == 0, "train.shards = ", shards, ": ", ranks,
                     " ranks cannot divide that many parts of a batch; start ", or_list(possible),
                     shards == 1 ? " rank" : " ranks",
                     ", or begin a new run with another power of two as train.shards");
  const int row = world.rank() / static_cast<int>(sequence_ranks),
            column = world.rank() % static_cast<int>(sequence_ranks);
  data_ = world.split(column);
  sequence_ = world.split(row);
}

bool RankGrid::leads() const { return world_.rank() == 0; }

bool RankGrid::any(bool condition) const { return world_.any(condition); }

Reducer::Share RankGrid::share() const { return {data().rank(), data().size()}; }

data::Batch part_of(const data::Batch& batch, const attention::SequencePart& part) {
  if (!part.cut()) return batch;
  data::Batch out = batch;
  out.tokens = columns(batch.tokens, part.begin, part.tokens(), 0).contiguous();
  if (batch.per_token())
    out.targets =
        columns(batch.targets, part.begin, part.tokens(), data::ignore_index).contiguous();
  return out;
}

data::Batch RankGrid::tokens_of(const data::Batch& batch, nn::Pass& pass) const {
  const auto part = attention::SequencePart::of(sequence(), batch.tokens.size(1));
  pass = attention::over_part(std::move(pass), part);
  return part_of(batch, *part);
}

// Every rank has the loss of whole sequences and contributes its share.
void RankGrid::keep_share(Loss& loss, const data::Batch& batch) const {
  if (sequence().size() == 1 || batch.per_token()) return;
  const double share = 1.0 / sequence().size();
  loss.value = loss.value * share;
  for (auto& [name, term] : loss.terms) term *= share;
  if (loss.unsmoothed) *loss.unsmoothed *= share;
  if (sequence().rank() > 0) loss.correct = 0;
}

void RankGrid::keep_share(Metrics& metrics, const data::Batch& batch) const {
  if (sequence().rank() == 0) return;
  if (!batch.per_token()) metrics = {};  // every rank has the metrics of whole sequences
  metrics.examples = metrics.tokens = 0;
}

std::unique_ptr<GradientSum> RankGrid::gradient_sum(const Parameters& parameters) const {
  if (world().size() == 1) return nullptr;
  return gradient_join(parameters, *this);
}

void RankGrid::add_losses(LossSums& total) const {
  std::vector<double> values{total.loss};
  for (const auto& [name, value] : total.terms) values.push_back(value);
  Tensor losses = Tensor::from(values, {std::ssize(values)});
  Tensor correct = Tensor::full({1}, 0, DType::i64);
  *correct.data<int64_t>() = total.correct;
  for (Communicator* const ranks : {&sequence(), &data()}) {
    ranks->sum(losses);
    ranks->sum(correct);
  }
  const double* value = losses.data<double>();
  total.loss = *value++;
  for (auto& [name, term] : total.terms) term = *value++;
  total.correct = *correct.data<int64_t>();
}

// Each rank has counted during its own forward passes.
void RankGrid::add_counts(std::vector<Tensor>& counters, const std::vector<Tensor>& before) const {
  if (data().size() == 1) return;
  for (size_t i = 0; i < counters.size(); ++i) {
    const int64_t n = counters[i].numel();
    Tensor added = counters[i].clone();
    int64_t* const count = counters[i].data<int64_t>();
    const int64_t* const old = before[i].data<int64_t>();
    for (int64_t j = 0; j < n; ++j) added.data<int64_t>()[j] -= old[j];
    data().sum(added);
    for (int64_t j = 0; j < n; ++j) count[j] = old[j] + added.data<int64_t>()[j];
  }
}

void RankGrid::of_last_batch(std::map<std::string, double>& metrics) const {
  if (world().size() == 1 || metrics.empty()) return;
  std::vector<double> own;
  for (const auto& [name, value] : metrics) own.push_back(value);
  const Tensor all = world().all_gather(Tensor::from(own, {std::ssize(own)}));
  const double* value = all.select(0, world().size() - sequence().size()).data<double>();
  for (auto& [name, entry] : metrics) entry = *value++;
}

// Each rank has every P-th batch.
void RankGrid::add_others(std::vector<Metrics>& batches) const {
  Communicator& ranks = data();
  Tensor most = Tensor::zeros({1}, DType::i64);  // the first rank's count
  if (ranks.rank() == 0) *most.data<int64_t>() = std::ssize(batches);
  ranks.sum(most);
  const int64_t turns = *most.data<int64_t>();
  Tensor losses = Tensor::zeros({turns}, DType::f64),
         counts = Tensor::zeros({turns, 6}, DType::i64);
  for (int64_t i = 0; i < std::ssize(batches); ++i) {
    const Metrics& m = batches[static_cast<size_t>(i)];
    losses.data<double>()[i] = m.loss_sum;
    std::ranges::copy(std::array{m.correct, m.targets, m.examples, m.tokens, m.found, m.numbers},
                      counts.data<int64_t>() + 6 * i);
  }
  sequence().sum(losses);
  sequence().sum(counts);
  const Tensor all_losses = ranks.all_gather(losses), all_counts = ranks.all_gather(counts);
  batches.clear();
  for (int64_t turn = 0; turn < turns; ++turn)
    for (int64_t rank = 0; rank < ranks.size(); ++rank) {
      const int64_t i = rank * turns + turn;
      const int64_t* const n = all_counts.data<int64_t>() + 6 * i;
      batches.push_back({all_losses.data<double>()[i], n[0], n[1], n[2], n[3], n[4], n[5]});
    }
}

void RankGrid::divide(Optimizer& optimizer) const {
  if (world().size() > 1) optimizer.divide(rank_division(world(), optimizer.parameters()));
}

void RankGrid::compare(const Parameters& parameters, int64_t step, int64_t equal) const {
  if (world().size() == 1) return;
  const auto difference = first_difference(world(), hash_of(parameters));
  if (!difference) return;
  const std::vector<std::string> hosts = world().gather(host_name());
  const std::string remedy =
      equal > 0
          ? concat_message("resume without it, from a checkpoint of step ", equal, " or before")
          : std::string("start again without it");
  throw Error(concat_message(
      "step ", step, ": the parameters of ",
      rank_name(difference->rank, hosts[static_cast<size_t>(difference->rank)]), " have the hash ",
      difference->found, ", those of ", rank_name(0, hosts[0]), " ", difference->expected,
      ", but they must be equal: one of these machines makes errors in computing or transmitting; ",
      remedy));
}

std::string rank_name(int rank, const std::string& host) {
  return concat_message("rank ", rank, " on ", host);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace longhand::train
