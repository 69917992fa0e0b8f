#include "longhand/train/cost/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/core/statistics.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/results/json.h"
#include "longhand/train/results/table.h"

namespace longhand::train {
namespace {

using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

/// What a step sends, by purpose.
enum Purpose {
  sequence,    // between ranks that share a sequence
  gradients,   // sums of buckets
  small,       // sums of losses and counts
  parameters,  // parameter parts, if the optimizer's state is divided
  purposes
};
struct Sent {
  double seconds = 0, bytes = 0, operations = 0;
};

/// The first rank of a dry run, which counts the bytes it sends.
class DryRanks : public Communicator {
 public:
  enum class Role { all, data, sequence };  // in the order of RankGrid's splits
  /// Totals over all of them.
  struct Log {
    /// The members of Sent, for each purpose.
    std::vector<double> numbers = std::vector<double>(3 * purposes);
    Sent last{};           // the last sum over a sequence
    const void* summed{};  // its tensor

    void add(Purpose purpose, const Sent& sent, double times = 1) {
      double* const of = &numbers[static_cast<size_t>(3 * purpose)];
      of[0] += times * sent.seconds, of[1] += times * sent.bytes, of[2] += times * sent.operations;
    }
  };

  DryRanks(const Rates& rates, const Split& split, Log& log, Role role = Role::all)
      : rates_(rates), split_(split), log_(log), role_(role) {}

  int rank() const override { return 0; }
  int size() const override {
    return static_cast<int>(role_ == Role::data       ? split_.data_ranks
                            : role_ == Role::sequence ? split_.sequence_ranks
                                                      : split_.ranks());
  }
  std::future<void> start_sum(Tensor x) override {
    const Sent sent = sent_by(Collective::sum, x);
    if (role_ == Role::sequence) {
      log_.add(sequence, sent);
      log_.last = sent, log_.summed = x.address();
      return {};
    }
    // Gradients and losses are summed over the ranks that share a sequence, then over a column.
    const Purpose purpose = x.dtype() == DType::i64 || x.numel() <= 16 ? small : gradients;
    log_.add(purpose, sent);
    if (log_.summed == x.address()) {
      log_.add(purpose, {log_.last.seconds, log_.last.bytes});
      log_.add(sequence, log_.last, -1);
    }
    return {};
  }
  Tensor all_gather(const Tensor& x) override {
    return counted(Collective::all_gather,
                   Tensor::empty(x.shape().with_axis(0, size()), x.dtype()));
  }
  Tensor sum_scatter(const Tensor& x) override {
    counted(Collective::sum_scatter, x);
    return Tensor::empty(x.shape().without_axis(0), x.dtype());
  }
  Tensor all_to_all(const Tensor& x) override {
    return counted(Collective::all_to_all, Tensor::empty(x.shape(), x.dtype()));
  }
  std::future<void> start_shift(Tensor x, Tensor, int) override {
    counted(Collective::shift, x);
    return {};
  }
  void broadcast(std::string&) override {}
  std::vector<std::string> gather(const std::string& own) override {
    return std::vector(static_cast<size_t>(size()), own);
  }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int) override {
    last_split_ = last_split_ == Role::all ? Role::data : Role::sequence;
    return std::make_unique<DryRanks>(rates_, split_, log_, last_split_);
  }
  void wait(std::future<void>) override {}
  Traffic traffic() const override { return {}; }

 private:
  /// `x`: the larger of the rank's input and output.
  Sent sent_by(Collective operation, const Tensor& x) const {
    const double bytes = number(x.bytes());
    return {rates_.seconds(operation, size(), bytes), bytes_sent(operation, size(), bytes), 1};
  }
  Tensor counted(Collective operation, Tensor x) {
    log_.add(role_ == Role::all ? parameters : sequence, sent_by(operation, x));
    return x;
  }

  const Rates& rates_;
  const Split& split_;
  Log& log_;
  Role role_, last_split_ = Role::all;
};

}  // namespace

double ComputeRates::seconds(const Work& of_rest, const Work& of_attention) const {
  return rest * limit(of_rest, machine) + attention * limit(of_attention, machine);
}

// Minimises Σ (x r + y a - 1)² + w ((x - 1)² + (y - 1)²), where r and a are a sample's limits
// divided by its seconds, in units of the best single ratio c; w is small.
ComputeRates fit_compute(const std::vector<StepSample>& samples, const Machine& machine) {
  constexpr double weight = 1e-3;
  check(!samples.empty(), "forecast: expected at least one measured step");
  double sum = 0, squares = 0;
  std::vector<std::pair<double, double>> limits;
  for (const StepSample& s : samples) {
    limits.emplace_back(limit(s.rest, machine) / s.seconds,
                        limit(s.attention, machine) / s.seconds);
    const double both = limits.back().first + limits.back().second;
    sum += both;
    squares += both * both;
  }
  const double c = sum / squares;
  double rr = weight, ra = 0, aa = weight, r1 = weight, a1 = weight;
  for (const auto& [rest, attention] : limits) {
    const double r = c * rest, a = c * attention;
    rr += r * r, ra += r * a, aa += a * a;
    r1 += r, a1 += a;
  }
  const double determinant = rr * aa - ra * ra, least = 0.05;
  double x = (r1 * aa - a1 * ra) / determinant, y = (a1 * rr - r1 * ra) / determinant;
  // Noise may make one part negative; the other one then fits the rest.
  if (x < least) x = least, y = (a1 - ra * x) / aa;
  if (y < least) y = least, x = (r1 - ra * y) / rr;
  return {machine, c * x, c * y};
}

ComputeRates measure_compute(const Config& config, int64_t sequences, const BenchOptions& options) {
  constexpr int64_t longest = 2048, shorter = 4, tokens = 4096;
  const int64_t full = std::min(read_model(config, nullptr).max_length, longest);
  std::vector<int64_t> lengths{full};
  if (full >= 16 * shorter) lengths.insert(lengths.begin(), full / shorter);
  std::vector<StepSample> samples;
  std::vector<double> flops, exps, bytes;
  for (const int64_t length : lengths) {
    Config at_length = config;
    at_length.assign("model", "max_length", length, "--length");
    const BenchResult result =
        bench_step(at_length, std::clamp<int64_t>(tokens / length, 1, sequences), options);
    samples.push_back({result.work.rest(), result.work.attention(), result.seconds});
    flops.push_back(result.machine.flops);
    exps.push_back(result.machine.exps);
    bytes.push_back(result.machine.bytes);
  }
  ComputeRates out =
      fit_compute(samples, {quantile(flops, 0.5), quantile(exps, 0.5), quantile(bytes, 0.5)});
  out.source = "measured here with " + counted(threads(), "thread");
  return out;
}

ComputeRates compute_of_bench(std::string_view json, const std::string& attention,
                              const std::string& source) {
  const Json all = try_parse_json(json);
  check<DataError>(all.is_object() && all.value("kind", Json()) == "bench step" &&
                       all.value("cells", Json()).is_array(),
                   source, ": expected the output of longhand bench step --json");
  const auto value = [&](const Json& cell, const char* key) {
    const std::optional<double> found = number_in(cell.value(key, Json()));
    check<DataError>(found && *found > 0 && std::isfinite(*found), source, ": expected a number ",
                     key, " above 0");
    return *found;
  };
  const Json* longest = nullptr;
  std::vector<std::string> names;
  for (const Json& cell : all["cells"]) {
    check<DataError>(
        cell.is_object() && cell.contains("attention") && cell["attention"].is_string(), source,
        ": expected cells with the name of their attention");
    const auto name = cell["attention"].get<std::string>();
    if (name != attention) {
      if (std::ranges::count(names, name) == 0) names.push_back(name);
      continue;
    }
    if (!longest || value(cell, "length") > value(*longest, "length")) longest = &cell;
  }
  check<DataError>(longest, source, ": has no cell of ", attention, ", but of ",
                   names.empty() ? "none at all" : comma_list(names));
  const double ratio = 1 / value(*longest, "share_of_limit");
  return {{1e9 * value(*longest, "machine_gflops"), value(*longest, "machine_exps_per_second"),
           value(*longest, "machine_bytes_per_second")},
          ratio,
          ratio,
          fmt::format("{}, {} tokens", source, value(*longest, "length"))};
}

std::string to_text(const Split& split) {
  return fmt::format("{} x {}", split.data_ranks, split.sequence_ranks);
}

Forecast forecast(const ForecastRequest& r, const Split& split) {
  const MemoryRequest& request = r.memory;
  DryRanks::Log log;
  DryRanks world(r.network, split, log);
  const RankGrid grid(world, split.sequence_ranks, split.data_ranks);
  const MemoryEstimate memory = estimate_memory(request, {grid, [&] { return log.numbers; }});
  const auto sent = [&](Purpose purpose) {
    const double* const of = memory.sent.empty() ? nullptr : &memory.sent[3UL * purpose];
    return of ? Sent{of[0], of[1], of[2]} : Sent();
  };
  const StepWork work =
      step_work(request.model, number(request.train.loading.batch_size) / number(split.data_ranks),
                memory.parameter_count, split.sequence_ranks);
  const auto seconds = [&](const Work& rest, const Work& attention) {
    return r.compute.seconds(rest, attention) / r.cores_per_thread;
  };
  // Recomputation and teachers repeat the forward pass.
  const double again = request.train.trainer.step.recompute ? 1 : 0;
  const double teacher = request.train.distill.from.empty() ? 0 : 1;
  const double backward = seconds(work.backward + again * work.forward,
                                  work.attention_backward + again * work.attention_forward);
  Forecast out{.split = split};
  out.compute = backward + (1 + teacher) * seconds(work.forward, work.attention_forward);
  const double share = request.train.trainer.shard_optimizer ? 1 / number(split.ranks()) : 1;
  out.optimizer = seconds(share * work.optimizer, {}) + sent(parameters).seconds;
  out.sequence = memory.repeats * sent(sequence).seconds;
  out.sent = sent(parameters).bytes + memory.repeats * sent(sequence).bytes;
  if (split.ranks() > 1) {
    const double buckets = std::max(1.0, sent(gradients).operations);
    out.gradients = sent(gradients).seconds;
    // Gradients leave during the backward pass of the last of a rank's parts: the first bucket
    // after the time between two buckets, the last one after the pass.
    const int64_t parts = request.micro_batches(split.data_ranks) / split.data_ranks;
    const double pass = backward / number(std::max<int64_t>(1, parts));
    const double exposed = std::max(out.gradients / buckets, pass / buckets + out.gradients - pass);
    if (r.has_free_cores) out.hidden = std::max(0.0, out.gradients - exposed);
    // Other sums, and whether any rank stops or saves.
    out.gradients += sent(small).seconds + 2 * r.network.seconds(Collective::sum, split.ranks(), 8);
    out.sent += sent(gradients).bytes + sent(small).bytes +
                2 * bytes_sent(Collective::sum, split.ranks(), 8);
  }
  out.memory = memory.total() + program_memory + (split.ranks() > 1 ? mpi_memory : 0);
  out.fits = !memory.exceeds && out.memory <= r.limit.bytes;
  return out;
}

std::vector<Split> possible_splits(const ForecastRequest& r, int64_t ranks) {
  const TransformerConfig& c = r.memory.model;
  std::vector<Split> out;
  const int64_t most = std::min(ranks, r.memory.train.loading.batch_size);
  // The class token belongs to no part, and a teacher reads whole sequences.
  const bool can_cut = !c.has_class_token() && r.memory.train.distill.from.empty();
  for (int64_t data = 1; data <= most; data *= 2) {
    const int64_t of_sequence = ranks / data;
    const bool divides = ranks % data == 0 && of_sequence <= c.max_length;
    if (divides && (of_sequence == 1 || can_cut)) out.push_back({data, of_sequence});
  }
  return out;
}

Choice choose(const std::vector<Forecast>& all, const MemoryLimit& limit) {
  check(!all.empty(), "forecast: expected at least one forecast to choose from");
  constexpr double equal = 1.02;
  const bool any_fits = std::ranges::any_of(all, &Forecast::fits);
  // If none fits, the one that needs the least memory is best.
  const auto value = [](const Forecast& f) { return f.fits ? f.seconds() : f.memory; };
  const auto best_of = [&](bool fits, const Forecast* without) {
    const Forecast* best = nullptr;
    for (const Forecast& f : all)
      if (f.fits == fits && &f != without && (!best || value(f) < value(*best))) best = &f;
    return best;
  };
  const double least = value(*best_of(any_fits, nullptr));
  const Forecast* chosen = nullptr;
  for (const Forecast& f : all)
    if (f.fits == any_fits && value(f) <= equal * least &&
        (!chosen || f.split.sequence_ranks < chosen->split.sequence_ranks))
      chosen = &f;
  const auto index = static_cast<size_t>(chosen - all.data());
  const auto needs = [&](const Forecast& f) {
    return fmt::format("{} needs {} a rank, {} has {}", to_text(f.split), bytes_text(f.memory),
                       limit.what, bytes_text(limit.bytes));
  };
  if (!any_fits) return {index, "does not fit: " + needs(*chosen)};
  const Forecast *const next = best_of(true, chosen), *const too_large = best_of(false, chosen);
  return {index, fmt::format("{} a step, {}{}", seconds_text(chosen->seconds()),
                             next        ? fmt::format("of those that fit the least; {} takes {}",
                                                       to_text(next->split), seconds_text(next->seconds()))
                             : too_large ? "and alone fits"
                                         : "and there is no other split",
                             too_large ? "; " + needs(*too_large) : "")};
}

std::string seconds_text(double seconds) {
  const auto with = [](double value, const char* unit) {
    return value < 10 ? fmt::format("{:.2g} {}", value, unit)
                      : fmt::format("{:.0f} {}", value, unit);
  };
  if (seconds < 1) return with(1e3 * seconds, "ms");
  if (seconds < 120) return with(seconds, "s");
  if (seconds < 7200) return with(seconds / 60, "min");
  if (seconds < 172800) return with(seconds / 3600, "h");
  if (seconds < 2 * 365.25 * 86400) return with(seconds / 86400, "days");
  return with(seconds / (365.25 * 86400), "years");
}

}  // namespace longhand::train
