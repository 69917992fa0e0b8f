// Parallel speed-up: the rate of one rank and of all ranks, measured alternately, with a timeline
// of a step; and the traffic of attention under sequence parallelism.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/core/statistics.h"
#include "longhand/train/config/config.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

struct ScalingOptions {
  int64_t steps = 5;  // steps per turn
  int64_t turns = 7;  // turns of one rank, and of all
  /// Called after each turn of all ranks.
  std::function<void(int64_t turn)> on_turn = {};
};

/// A time span within one rank's step, in seconds since the step began.
struct Span {
  int rank = 0;
  std::string what;    // a phase of Observer::on_phase, or an operation of a communicator
  bool sends = false;  // whether it is an operation
  double begin = 0, end = 0;
};

struct Scaling {
  int64_t tokens = 0;            // per rank and step, with padding
  std::vector<double> one, all;  // seconds per step of one rank, and of all: means per turn
  int64_t bytes = 0;             // bytes that a rank sends per step
  double communication = 0;      // seconds per step of sending gradients, on the slowest rank
  double waited = 0;             // part of these in which it only waits
  std::vector<Span> timeline{};  // of the step with median time

  /// Returns the tokens per second of all ranks over those of one: at best the number of ranks.
  double speed_up(int ranks) const;
  /// Returns the fraction of communication during which ranks compute.
  double hidden() const {
    return communication > 0 ? 1 - std::min(1.0, waited / communication) : 1;
  }
};

/// Trains with the configuration, whose train.batch_size and train.shards are per rank, alternating
/// between the first rank alone, while the others wait, and all ranks, with equally many examples
/// each. Writes nothing. Collective; the first rank has the result.
Scaling measure_scaling(Communicator& world, const Config& config, const ScalingOptions& options);

/// What the layers of a model send under sequence parallelism.
struct SequenceTraffic {
  std::string path;  // attention::name_of() of the variant's path
  /// Bytes that this rank sends for one layer in a forward and a backward pass.
  double bytes = 0;
  double seconds = 0;  // of both passes through the whole model, minimum of three
};

/// Runs a forward and a backward pass of the model, which has one target per token, on one sequence
/// of max_length random tokens, divided over the ranks. Collective.
SequenceTraffic measure_sequence_traffic(Communicator& ranks,
                                         const attention::TransformerConfig& config);

}  // namespace longhand::train
