#include "longhand/train/cost/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/attention/registry.h"
#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/core/statistics.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/results/json.h"

namespace longhand::train {
namespace {

using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

/// The share of the work of attention that a rank does, of `ranks` to a sequence.
double share_of_rank(const attention::Variant& variant, bool causal, int64_t ranks) {
  using attention::SequencePath;
  switch (attention::sequence_path(variant, static_cast<int>(ranks))) {
    case SequencePath::gathered:
      return 1;
    case SequencePath::keys:
    case SequencePath::ring:
      // Of causal attention, the queries of the last rank see most of the keys: 1 - (1 - 1 / P)².
      return (causal ? 2 - 1 / number(ranks) : 1) / number(ranks);
    default:
      return 1 / number(ranks);
  }
}

/// The work of a step on one rank.
struct RankWork {
  Work forward, backward, attention_forward, attention_backward, optimizer;
};
RankWork work_of_rank(const ForecastRequest& r, const Split& split, double parameters) {
  const TransformerConfig& c = r.memory.model;
  const int64_t S = split.sequence_ranks;
  const double sequences = number(r.memory.batch_size) / number(split.data_ranks);
  const double tokens = sequences * number(c.max_length) / number(S);
  // Recomputation and teachers repeat the forward pass.
  const double in_forward = 1 + (r.memory.teacher ? 1 : 0),
               in_backward = r.memory.recompute ? 1 : 0;
  RankWork out;
  const ModelWork rest = model_work(c, tokens, parameters);
  out.forward = in_forward * rest.forward;
  out.backward = rest.backward + in_backward * rest.forward;
  out.optimizer = (r.memory.shares_optimizer ? 1 / number(split.ranks()) : 1.0) * rest.optimizer;
  for_variants(c, [&](const attention::Variant& variant) {
    const AttentionWork work = attention_work(variant, c.max_length);
    const double times = sequences * share_of_rank(variant, c.causal, S);
    out.attention_forward = out.attention_forward + times * in_forward * work.forward;
    out.attention_backward =
        out.attention_backward + times * (work.backward + in_backward * work.forward);
  });
  return out;
}

/// What a rank sends in a step, by its purpose.
struct Messages {
  struct Sent {
    double seconds = 0, bytes = 0;
  };
  Sent sequence;    // between the ranks of a sequence
  Sent gradients;   // sums of buckets
  Sent small;       // sums of losses and counts
  Sent parameters;  // parts of them, if the optimizer is shared out
  double buckets = 0;

  static Messages from(const std::vector<double>& v) {
    if (v.empty()) return {};
    return {{v[0], v[1]}, {v[2], v[3]}, {v[4], v[5]}, {v[6], v[7]}, v[8]};
  }
  std::vector<double> totals() const {
    return {sequence.seconds, sequence.bytes,     gradients.seconds, gradients.bytes, small.seconds,
            small.bytes,      parameters.seconds, parameters.bytes,  buckets};
  }
};

/// The first rank of a dry run, which counts what it sends.
class DryRanks : public Communicator {
 public:
  enum class Role { all, data, sequence };  // in the order of RankGrid's splits
  /// `log` counts all of them together.
  struct Log {
    Messages messages{};
    Messages::Sent last{};  // of the last sum over a sequence
    const void* summed{};   // its tensor
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
    const Messages::Sent sent = sent_by(Collective::sum, x);
    if (role_ == Role::sequence) {
      add(log_.messages.sequence, sent);
      log_.last = sent, log_.summed = data_of(x);
      return {};
    }
    // Gradients and losses are summed over the ranks of a sequence, then over those of a column.
    const bool is_small = x.dtype() == DType::i64 || x.numel() <= 16;
    Messages::Sent& to = is_small ? log_.messages.small : log_.messages.gradients;
    add(to, sent);
    log_.messages.buckets += is_small ? 0 : 1;
    if (log_.summed == data_of(x)) {
      add(to, log_.last);
      add(log_.messages.sequence, {-log_.last.seconds, -log_.last.bytes});
    }
    return {};
  }
  Tensor all_gather(const Tensor& x) override {
    Shape shape{size()};
    for (const int64_t n : x.shape()) shape.push_back(n);
    return counted(Collective::all_gather, Tensor::empty(shape, x.dtype()));
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
  static const void* data_of(const Tensor& x) {
    return dispatch_any(x.dtype(), [&]<class T>() -> const void* { return x.data<T>(); });
  }
  static void add(Messages::Sent& to, const Messages::Sent& sent) {
    to.seconds += sent.seconds;
    to.bytes += sent.bytes;
  }
  /// `x`: the larger one of what the rank gives and gets.
  Messages::Sent sent_by(Collective operation, const Tensor& x) const {
    const double bytes = number(x.numel()) * number(static_cast<int64_t>(size_of(x.dtype())));
    return {rates_.seconds(operation, size(), bytes), bytes_sent(operation, size(), bytes)};
  }
  Tensor counted(Collective operation, Tensor x) {
    add(role_ == Role::all ? log_.messages.parameters : log_.messages.sequence,
        sent_by(operation, x));
    return x;
  }

  const Rates& rates_;
  const Split& split_;
  Log& log_;
  Role role_, last_split_ = Role::all;
};

/// Seconds and bytes of gradients, of what else is summed in a step, and of whether any rank stops or saves.
void add_gradients(const ForecastRequest& r, const Split& split, const Messages& messages,
                   double backward, Forecast& out) {
  if (split.ranks() == 1) return;
  const double buckets = std::max(1.0, messages.buckets),
               of_bucket = messages.gradients.seconds / buckets;
  const double last_known = backward / buckets;  // seconds from each bucket to the next
  out.gradients = messages.gradients.seconds;
  // The first one leaves after last_known seconds, the last one after the backward pass.
  const double exposed = std::max(of_bucket, last_known + out.gradients - backward);
  if (r.has_free_cores) out.hidden = std::max(0.0, out.gradients - exposed);
  out.gradients +=
      messages.small.seconds + 2 * r.network.seconds(Collective::sum, split.ranks(), 8);
  out.sent += messages.gradients.bytes + messages.small.bytes +
              2 * bytes_sent(Collective::sum, split.ranks(), 8);
}

MemoryRequest memory_of(const ForecastRequest& r, const Split& split) {
  MemoryRequest out = r.memory;
  out.micro_batches =
      std::min(std::max(r.shards, split.data_ranks) * r.micro_batches, out.batch_size);
  return out;
}

}  // namespace

double ComputeRates::seconds(const Work& of_rest, const Work& of_attention) const {
  return rest * limit(of_rest, machine) + attention * limit(of_attention, machine);
}

// Minimises Σ (x r + y a - 1)² + w ((x - 1)² + (y - 1)²), where r and a are the limits of a sample
// divided by its seconds, in units of the ratio c that alone fits best; w is small.
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
  // Noise may ask for less than nothing of one part; the other one then fits the rest.
  if (x < least) x = least, y = (a1 - ra * x) / aa;
  if (y < least) y = least, x = (r1 - ra * y) / rr;
  return {machine, c * x, c * y};
}

ComputeRates measure_compute(const Config& config, int64_t sequences, const BenchOptions& options) {
  constexpr int64_t longest = 2048, shorter = 4, tokens = 4096;
  TransformerConfig model = read_model(config, nullptr);
  const int64_t full = std::min(model.max_length, longest);
  std::vector<int64_t> lengths{full};
  if (full >= 16 * shorter) lengths.insert(lengths.begin(), full / shorter);
  std::vector<StepSample> samples;
  std::vector<double> flops, exps, bytes;
  for (const int64_t length : lengths) {
    Config at_length = config;
    at_length.assign("model", "max_length", length, "--length");
    model = read_model(at_length, nullptr);
    const int64_t batch = std::clamp<int64_t>(tokens / length, 1, sequences);
    const BenchResult result = bench_step(at_length, batch, options);
    const ModelWork rest = model_work(model, number(batch * length), number(result.parameters));
    Work attention;
    for_variants(model, [&](const attention::Variant& variant) {
      const AttentionWork work = attention_work(variant, length);
      attention = attention + number(batch) * (work.forward + work.backward);
    });
    samples.push_back({rest.forward + rest.backward + rest.optimizer, attention, result.seconds});
    flops.push_back(result.machine.flops);
    exps.push_back(result.machine.exps);
    bytes.push_back(result.machine.bytes);
  }
  ComputeRates out =
      fit_compute(samples, {quantile(flops, 0.5), quantile(exps, 0.5), quantile(bytes, 0.5)});
  out.source =
      fmt::format("measured here with {} {}", threads(), threads() == 1 ? "thread" : "threads");
  return out;
}

ComputeRates compute_of_bench(std::string_view json, const std::string& attention,
                              const std::string& source) {
  const Json all = try_parse_json(json);
  check<DataError>(all.is_object() && all.contains("kind") && all["kind"] == "bench step" &&
                       all.contains("cells") && all["cells"].is_array(),
                   source, ": expected the output of longhand bench step --json");
  const auto value = [&](const Json& cell, const char* key) {
    const std::optional<double> found =
        cell.contains(key) ? number_in(cell[key]) : std::optional<double>();
    check<DataError>(found && *found > 0 && std::isfinite(*found), source, ": expected a number ",
                     key, " above 0");
    return *found;
  };
  const Json* longest = nullptr;
  std::string names;
  for (const Json& cell : all["cells"]) {
    check<DataError>(
        cell.is_object() && cell.contains("attention") && cell["attention"].is_string(), source,
        ": expected cells with the name of their attention");
    const auto name = cell["attention"].get<std::string>();
    if (name != attention) {
      if ((", " + names + ",").find(", " + name + ",") == std::string::npos)
        names += (names.empty() ? "" : ", ") + name;
      continue;
    }
    if (!longest || value(cell, "length") > value(*longest, "length")) longest = &cell;
  }
  check<DataError>(longest, source, ": has no cell of ", attention, ", but of ",
                   names.empty() ? "none at all" : names);
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
  const MemoryRequest request = memory_of(r, split);
  DryRanks::Log log;
  DryRanks world(r.network, split, log);
  const RankGrid grid(world, split.sequence_ranks, split.data_ranks);
  const MemoryEstimate memory =
      estimate_memory(request, {grid, [&] { return log.messages.totals(); }});
  const Messages messages = Messages::from(memory.sent);
  const double parts =
      std::max(1.0, std::floor(number(request.micro_batches) / number(split.data_ranks)));
  const RankWork work = work_of_rank(r, split, memory.parameter_count);
  Forecast out{.split = split};
  const double slower = 1 / r.cores_per_thread;
  const auto seconds = [&](const Work& rest, const Work& attention) {
    return slower * r.compute.seconds(rest, attention);
  };
  out.compute =
      seconds(work.forward + work.backward, work.attention_forward + work.attention_backward);
  out.optimizer = seconds(work.optimizer, {}) + messages.parameters.seconds;
  out.sequence = memory.repeats * messages.sequence.seconds;
  out.sent = messages.parameters.bytes + memory.repeats * messages.sequence.bytes;
  // Gradients leave during the backward pass of the last of a rank's parts.
  add_gradients(r, split, messages, seconds(work.backward, work.attention_backward) / parts, out);
  out.memory = memory.total() + program_memory + (split.ranks() > 1 ? mpi_memory : 0);
  out.fits = !memory.exceeds && out.memory <= r.limit.bytes;
  return out;
}

std::vector<Split> possible_splits(const ForecastRequest& r, int64_t ranks) {
  const TransformerConfig& c = r.memory.model;
  std::vector<Split> out;
  for (int64_t data = 1; data <= std::min(ranks, r.memory.batch_size); data *= 2) {
    const int64_t of_sequence = ranks / data;
    const bool divides = ranks % data == 0 && of_sequence <= c.max_length;
    // The class token belongs to no part, and a teacher reads whole sequences.
    if (divides && (of_sequence == 1 || ((c.per_token || c.pooling != "cls") && !r.memory.teacher)))
      out.push_back({data, of_sequence});
  }
  return out;
}

Choice choose(const std::vector<Forecast>& all, const MemoryLimit& limit) {
  check(!all.empty(), "forecast: expected at least one forecast to choose from");
  constexpr double equal = 1.02;
  const bool any_fits =
      std::any_of(all.begin(), all.end(), [](const Forecast& f) { return f.fits; });
  // If none fits, the one that needs the least memory is the best.
  const auto value = [&](const Forecast& f) { return f.fits ? f.seconds() : f.memory; };
  double least = INFINITY;
  for (const Forecast& f : all)
    if (f.fits == any_fits) least = std::min(least, value(f));
  size_t best = all.size();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].fits == any_fits && value(all[i]) <= equal * least &&
        (best == all.size() || all[i].split.sequence_ranks < all[best].split.sequence_ranks))
      best = i;
  const Forecast& chosen = all[best];
  const auto needs = [&](const Forecast& f) {
    return fmt::format("{} needs {} a rank", to_text(f.split), bytes_text(f.memory));
  };
  if (!chosen.fits)
    return {best, fmt::format("does not fit: {}, {} has {}", needs(chosen), limit.what,
                              bytes_text(limit.bytes))};
  std::string why = fmt::format("{} a step", seconds_text(chosen.seconds()));
  const Forecast *next = nullptr, *too_large = nullptr;
  for (const Forecast& f : all) {
    if (&f == &chosen) continue;
    const Forecast*& other = f.fits ? next : too_large;
    if (!other || value(f) < value(*other)) other = &f;
  }
  if (next)
    why += fmt::format(", of those that fit the least; {} takes {}", to_text(next->split),
                       seconds_text(next->seconds()));
  else if (too_large)
    why += ", and alone fits";
  else
    why += ", and there is no other split";
  if (too_large)
    why += fmt::format("; {}, {} has {}", needs(*too_large), limit.what, bytes_text(limit.bytes));
  return {best, why};
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
