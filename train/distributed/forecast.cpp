#include "longhand/train/distributed/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/core/statistics.h"
#include "longhand/train/distributed/gradient_join.h"
#include "longhand/train/experiment.h"
#include "longhand/train/json.h"

namespace longhand::train {
namespace {

using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

/// The number of parameter tensors outside of variants.
double parameter_tensors(const TransformerConfig& c) {
  double out = 2;  // tokens, and the weight of the head
  for (const attention::LinearLayer& linear : c.linear_layers()) out += linear.rank > 0 ? 3 : 2;
  const double of_norm = c.norm_type == "layer_norm" ? 2 : 1;
  out += number(c.layers) * of_norm * (c.d_mlp > 0 ? 2 : 1) + (c.norm == "pre" ? of_norm : 0);
  return out + 1 + (c.positions == "learned" ? 1 : 0) + (c.head_hidden ? 2 : 0) -
         (c.tied_embeddings ? 1 : 0);
}

/// What the ranks of a sequence exchange in one layer for one sequence, forward and backward.
struct SequenceExchange {
  Collective operation = Collective::all_to_all;
  double forward = 0, backward = 0;  // operations, whose bytes are about equal
  double sent = 0;                   // bytes of a rank
  double share = 1;                  // of the work of attention, which each rank does
};
SequenceExchange sequence_exchange(const attention::Variant& variant, bool causal, int64_t tokens,
                                   int64_t ranks) {
  if (ranks == 1) return {};
  using attention::SequencePath;
  const auto P = static_cast<int>(ranks);
  SequenceExchange out{.sent = variant.sequence_bytes(1, tokens, P), .share = 1 / number(ranks)};
  const auto of = [&](Collective operation, double forward, double backward) {
    out.operation = operation;
    out.forward = forward;
    out.backward = backward;
    return out;
  };
  switch (attention::sequence_path(variant, P)) {
    case SequencePath::gathered:
      out.share = 1;
      return of(Collective::all_gather, 1, 1);
    case SequencePath::heads:
      return of(Collective::all_to_all, 2, 2);
    case SequencePath::keys:
      // Of causal attention, the queries of the last rank see most of the keys: 1 - (1 - 1 / P)².
      if (causal) out.share *= 2 - 1 / number(ranks);
      return of(Collective::all_gather, 1, 1);
    case SequencePath::ring:
      // In each step, the last rank has something to do.
      if (causal) out.share *= 2 - 1 / number(ranks);
      return of(Collective::shift, number(ranks - 1), number(2 * ranks - 1));
    case SequencePath::sums:
      return of(causal ? Collective::all_gather : Collective::sum, 1, 1);
    case SequencePath::state:
      return of(Collective::all_gather, 1, 1);
    case SequencePath::landmarks:
      return of(Collective::sum, 2, 2);
    case SequencePath::halo:
      return of(Collective::shift, 2, 2);
    case SequencePath::local:
      return of(Collective::shift, 0, 0);
    case SequencePath::parts:
      return of(Collective::all_to_all, 4, 4);
  }
  return out;
}

/// Seconds of operations in which a rank sends so many bytes in all.
double seconds_to_send(const Rates& rates, Collective operation, int64_t ranks, double operations,
                       double sent) {
  if (ranks == 1 || operations == 0) return 0;
  const double each = sent / operations;
  const double bytes = operation == Collective::shift ? each
                       : operation == Collective::sum
                           ? each * number(ranks) / (2 * number(ranks - 1))
                           : each * number(ranks) / number(ranks - 1);
  return operations * rates.seconds(operation, ranks, bytes);
}

/// Seconds and bytes of what a rank sends.
struct Sent {
  double seconds = 0, bytes = 0;

  void add(double more_seconds, double more_bytes) {
    seconds += more_seconds;
    bytes += more_bytes;
  }
};

/// The work of a step on one rank, and what the ranks of a sequence exchange meanwhile.
struct RankWork {
  Work forward, backward, attention_forward, attention_backward, optimizer;
  Sent exchange;
};
RankWork work_of_rank(const ForecastRequest& r, const Split& split, double parameters,
                      double parts) {
  const TransformerConfig& c = r.memory.model;
  const int64_t S = split.sequence_ranks;
  const double sequences = number(r.memory.batch_size) / number(split.data_ranks);
  const double tokens = sequences * number(c.max_length) / number(S);
  // Recomputation and teachers repeat the forward pass.
  const double forward = 1 + (r.memory.recompute ? 1 : 0) + (r.memory.teacher ? 1 : 0);
  const double in_backward = r.memory.recompute ? 1 : 0, in_forward = forward - in_backward;
  RankWork out;
  const ModelWork rest = model_work(c, tokens, parameters);
  out.forward = in_forward * rest.forward;
  out.backward = rest.backward + in_backward * rest.forward;
  out.optimizer = (r.memory.shares_optimizer ? 1 / number(split.ranks()) : 1.0) * rest.optimizer;
  const auto exchange = [&](const SequenceExchange& e) {
    const double each = e.forward + e.backward, all = forward * e.forward + e.backward;
    if (each == 0) return;
    const double bytes = sequences * e.sent / each * all;
    out.exchange.add(seconds_to_send(r.network, e.operation, S, parts * all, bytes), bytes);
  };
  for_variants(c, [&](const attention::Variant& variant) {
    const SequenceExchange of_layer = sequence_exchange(variant, c.causal, c.max_length, S);
    const AttentionWork work = attention_work(variant, c.max_length);
    const double times = sequences * of_layer.share;
    out.attention_forward = out.attention_forward + times * in_forward * work.forward;
    out.attention_backward =
        out.attention_backward + times * (work.backward + in_backward * work.forward);
    exchange(of_layer);
  });
  if (S == 1) return out;
  // Short convolutions see the tokens before a part, and pooling is a sum over all parts.
  for (int64_t layer = 0; layer < c.layers && c.around.short_conv > 1; ++layer)
    exchange({.operation = Collective::shift,
              .forward = 3,
              .backward = 3,
              .sent = 8 * number((c.around.short_conv - 1) * c.projected_width(layer))});
  if (!c.per_token)
    exchange({.operation = Collective::sum,
              .forward = 1,
              .backward = 1,
              .sent = 2 * bytes_sent(Collective::sum, S, 4 * number(c.d_model))});
  return out;
}

/// Sums over all ranks: over those of a row, then over those of a column.
Sent sums_of(const ForecastRequest& r, const Split& split, double bytes) {
  Sent out;
  for (const int64_t ranks : {split.sequence_ranks, split.data_ranks})
    out.add(r.network.seconds(Collective::sum, ranks, bytes),
            bytes_sent(Collective::sum, ranks, bytes));
  return out;
}

/// Sums of gradients in equal buckets, and of what else is summed in a step: losses, correct
/// predictions, and which gradients are there; and whether any rank stops or saves.
void add_gradients(const ForecastRequest& r, const Split& split, double parameters, double backward,
                   Forecast& out) {
  if (split.ranks() == 1) return;
  const double bytes = 4 * parameters, tensors = parameter_tensors(r.memory.model);
  // A bucket is complete with the parameter that fills it.
  const double buckets =
      std::max(1.0, std::floor(bytes / (number(GradientJoin::bucket_bytes) + bytes / tensors / 2)));
  const Sent bucket = sums_of(r, split, bytes / buckets);
  const double last_known = backward / buckets;  // seconds from each bucket to the next
  out.gradients = buckets * bucket.seconds;
  // The first one leaves after last_known seconds, the last one after the backward pass.
  const double exposed = std::max(bucket.seconds, last_known + out.gradients - backward);
  if (r.has_free_cores) out.hidden = std::max(0.0, out.gradients - exposed);
  out.sent += buckets * bucket.bytes;
  for (const double small : {8 * (1 + r.terms), 8.0, 8 * tensors}) {
    const Sent each = sums_of(r, split, small);
    out.gradients += each.seconds;
    out.sent += each.bytes;
  }
  out.gradients += 2 * r.network.seconds(Collective::sum, split.ranks(), 8);
  out.sent += 2 * bytes_sent(Collective::sum, split.ranks(), 8);
}

MemoryRequest memory_of(const ForecastRequest& r, const Split& split) {
  MemoryRequest out = r.memory;
  out.data_ranks = split.data_ranks;
  out.sequence_ranks = split.sequence_ranks;
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
  const MemoryEstimate memory = estimate_memory(request);
  const double P = memory.parameter_count;
  const double parts =
      std::max(1.0, std::floor(number(request.micro_batches) / number(split.data_ranks)));
  const RankWork work = work_of_rank(r, split, P, parts);
  Forecast out{.split = split};
  const double slower = 1 / r.cores_per_thread;
  const auto seconds = [&](const Work& rest, const Work& attention) {
    return slower * r.compute.seconds(rest, attention);
  };
  out.compute =
      seconds(work.forward + work.backward, work.attention_forward + work.attention_backward);
  out.optimizer = seconds(work.optimizer, {});
  if (r.memory.shares_optimizer && split.ranks() > 1) {
    out.optimizer += r.network.seconds(Collective::all_gather, split.ranks(), 4 * P);
    out.sent += bytes_sent(Collective::all_gather, split.ranks(), 4 * P);
  }
  out.sequence = work.exchange.seconds;
  out.sent += work.exchange.bytes;
  // Gradients leave during the backward pass of the last of a rank's parts.
  add_gradients(r, split, P, seconds(work.backward, work.attention_backward) / parts, out);
  out.memory = memory.total() + program_memory + (split.ranks() > 1 ? mpi_memory : 0);
  out.fits = out.memory <= r.limit.bytes;
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
