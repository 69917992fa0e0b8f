// Forecast: what a training step takes on any number of ranks, from measured rates. plan.md has the formulas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/train/config/memory.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/cost/rates.h"

namespace longhand::train {

/// A measured training step of one rank.
struct StepSample {
  Work rest, attention;  // rest: the optimizer too
  double seconds = 0;
};

/// How fast one rank computes: rest and attention are the times measured, divided by limit() of their
/// work.
struct ComputeRates {
  Machine machine;
  double rest = 1, attention = 1;
  std::string source{};  // "measured here with 2 threads"

  double seconds(const Work& of_rest, const Work& of_attention) const;
};
/// Those that minimise the sum of the squares of relative deviations from the samples. What samples of one
/// length cannot tell apart is equal for both.
ComputeRates fit_compute(const std::vector<StepSample>& samples, const Machine& machine);
/// Measures steps of the model that [model] and [attention] describe, at two lengths of at most
/// model.max_length and 2,048 tokens, on at most `sequences` sequences and about 4,096 tokens. Throws
/// ConfigError as bench_step() does.
ComputeRates measure_compute(const Config& config, int64_t sequences, const BenchOptions& options);
/// The rates in the output of `longhand bench step --json`: those of its longest cell of this attention.
/// Throws DataError, naming `source`, for other text, and without such a cell.
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
  MemoryRequest memory;  // of one process
  ComputeRates compute{};
  Rates network = Rates::assumed(50e-6, 1e9);
  MemoryLimit limit{};  // of each rank
  /// Cores for each thread of a rank, if the ranks share a machine with fewer cores than threads; at most
  /// 1. Communication is then not hidden, because there is no core left for it.
  double cores_per_thread = 1;
  bool has_free_cores = true;
};

/// What one step takes on each rank.
struct Forecast {
  Split split;
  double compute = 0;    // seconds of forward and backward
  double optimizer = 0;  // seconds, with the exchange of its parts
  double sequence = 0;   // seconds of exchanges between the ranks of a sequence
  double gradients = 0;  // seconds of the sum of gradients, and of all small messages
  double hidden = 0;     // of these, while the backward pass computes
  double sent = 0;       // bytes
  double memory = 0;     // bytes, of the leading rank
  bool fits = false;

  double communication() const { return sequence + gradients; }
  double seconds() const { return compute + optimizer + sequence + gradients - hidden; }
};
Forecast forecast(const ForecastRequest& request, const Split& split);

/// The splits of this number of ranks that can train: the ranks that divide the sequences of a batch
/// are a power of two and at most train.batch_size.
std::vector<Split> possible_splits(const ForecastRequest& request, int64_t ranks);

/// The best of several forecasts for the same model and length: those that fit into memory come first,
/// then the fastest; of those within two percent the one with the fewest ranks to a sequence. `why` is a sentence.
struct Choice {
  size_t index = 0;
  std::string why{};
};
Choice choose(const std::vector<Forecast>& forecasts, const MemoryLimit& limit);

/// "0.42 s", "3.1 ms", "2.5 h"
std::string seconds_text(double seconds);

}  // namespace longhand::train
