// Parallel speed-up: the rate of one rank and of all of them, measured in turns, and a timeline of a
// step. What they send for attention if sequences are cut.
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
  int64_t steps = 5;  // of a turn
  int64_t turns = 7;  // of one rank, and of all
  /// Called after each turn of all ranks.
  std::function<void(int64_t turn)> on_turn = {};
};

/// A span of time of one step, of one rank, in seconds since the step began.
struct Span {
  int rank = 0;
  std::string what;    // a phase of Observer::on_phase, or an operation of a communicator
  bool sends = false;  // an operation
  double begin = 0, end = 0;
};

struct Scaling {
  int64_t tokens = 0;            // of one rank in one step, with padding
  std::vector<double> one, all;  // seconds of a step of one rank, and of all: means of each turn
  int64_t bytes = 0;             // that a rank sends in a step
  double communication = 0;  // seconds of a step in which gradients are sent, of the slowest rank
  double waited = 0;         // of these, in which it only waits
  std::vector<Span> timeline{};  // of the step of median time

  /// The tokens per second of all ranks divided by those of one: at best the number of ranks.
  double speed_up(int ranks) const;
  /// The part of the communication during which ranks compute.
  double hidden() const {
    return communication > 0 ? 1 - std::min(1.0, waited / communication) : 1;
  }
};

/// Trains by the configuration, whose train.batch_size and train.shards are those of one rank, in turns:
/// the first rank alone, while the others wait, then all ranks, with as many examples for each. Nothing is
/// written. Collective; the first rank has the result.
Scaling measure_scaling(Communicator& world, const Config& config, const ScalingOptions& options);

/// What the layers of a model send if its sequences are cut over ranks.
struct SequenceTraffic {
  std::string path;  // attention::name_of() that of the variant
  /// That this rank sends for one layer in a forward and a backward pass.
  double bytes = 0;
  double seconds = 0;  // of both passes through the whole model, the least of three
};

/// Runs a forward and a backward pass of the model, which has one target a token, on one sequence of
/// max_length random tokens, cut over the ranks. Collective.
SequenceTraffic measure_sequence_traffic(Communicator& ranks,
                                         const attention::TransformerConfig& config);

}  // namespace longhand::train
