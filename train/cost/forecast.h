// Forecast: cost of a training step on any number of ranks, from measured rates; see plan.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/train/config/memory.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/cost/rates.h"

namespace longhand::train {

/// A measured training step on one rank.
struct StepSample {
  Work rest, attention;  // rest includes the optimizer
  double seconds = 0;
};

/// How fast one rank computes: `rest` and `attention` are measured times divided by limit() of
/// their work.
struct ComputeRates {
  Machine machine;
  double rest = 1, attention = 1;
  std::string source{};  // "measured here with 2 threads"

  double seconds(const Work& of_rest, const Work& of_attention) const;
};
/// Returns the rates that minimise the sum of squared relative deviations from the samples. Samples
/// of a single length cannot tell the two rates apart, which are then equal.
ComputeRates fit_compute(const std::vector<StepSample>& samples, const Machine& machine);
/// Measures steps of the model that [model] and [attention] describe, at two lengths of at most
/// model.max_length and 2,048 tokens, on at most `sequences` sequences and about 4,096 tokens.
/// Throws ConfigError as bench_step() does.
ComputeRates measure_compute(const Config& config, int64_t sequences, const BenchOptions& options);
/// Returns the rates in the output of `longhand bench step --json`, from its longest cell with this
/// attention. Throws DataError, naming `source`, for other text and if there is no such cell.
ComputeRates compute_of_bench(std::string_view json, const std::string& attention,
                              const std::string& source);

/// How the ranks of a run are divided: see RankGrid.
struct Split {
  int64_t data_ranks = 1, sequence_ranks = 1;

  int64_t ranks() const { return data_ranks * sequence_ranks; }
};
/// "4 x 2"
std::string to_text(const Split& split);

struct ForecastRequest {
  MemoryRequest memory;  // for one process
  ComputeRates compute{};
  Rates network = Rates::assumed(50e-6, 1e9);
  MemoryLimit limit{};  // per rank
  /// Cores per thread of a rank if the ranks share a machine with fewer cores than threads; at most
  /// 1. Communication is then not hidden, because no core is left for it.
  double cores_per_thread = 1;
  bool has_free_cores = true;
};

/// The cost of one step on each rank.
struct Forecast {
  Split split;
  double compute = 0;    // seconds of forward and backward
  double optimizer = 0;  // seconds, including the exchange of its parts
  double sequence = 0;   // seconds of exchanges between ranks that share a sequence
  double gradients = 0;  // seconds of summing gradients, and of all small messages
  double hidden = 0;     // part of `gradients` overlapped with the backward pass
  double sent = 0;       // bytes sent
  double memory = 0;     // bytes, of the leading rank
  bool fits = false;

  double communication() const { return sequence + gradients; }
  double seconds() const { return compute + optimizer + sequence + gradients - hidden; }
};
Forecast forecast(const ForecastRequest& request, const Split& split);

/// Returns the splits of this number of ranks that can train: the ranks that divide the sequences
/// of a batch are a power of two and at most train.batch_size.
std::vector<Split> possible_splits(const ForecastRequest& request, int64_t ranks);

/// The best of several forecasts for a model and length: first those that fit into memory, then the
/// fastest; within two percent, the one with fewest ranks per sequence. `why`: a sentence.
struct Choice {
  size_t index = 0;
  std::string why{};
};
Choice choose(const std::vector<Forecast>& forecasts, const MemoryLimit& limit);

/// Returns text such as "0.42 s", "3.1 ms" or "2.5 h".
std::string seconds_text(double seconds);

}  // namespace longhand::train
