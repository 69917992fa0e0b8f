// Memory: what a run will take, from its configuration alone, and what the machine has.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/data/dataset.h"

namespace longhand::train {

struct Plan;

/// What determines the memory of a run. Sizes may be far too large for this machine.
struct MemoryRequest {
  attention::TransformerConfig model;
  bool fixed_mlp = false;  // d_mlp was given: it does not follow d_model
  bool trains = true;      // otherwise the model only evaluates
  int64_t batch_size = 1, micro_batches = 1;
  int64_t eval_batch_size = 1;  // 0: no evaluation
  bool eval_follows = false;    // eval_batch_size was not given: it is batch_size
  bool recompute = false;
  double moments = 2;    // numbers that the optimizer keeps per parameter
  bool average = false;  // exponential moving average of the weights
  bool teacher = false;  // of distillation: assumed to be as large as the model
  bool saves = true;     // checkpoints
  /// The share of the targets of tokens that count: the head computes logits of these alone if they
  /// are at most half.
  double counted = 1;
  data::DataMemory data{};
  double limit_gib = 0;  // train.memory_limit; 0: what is available
  // Of a run on data_ranks x sequence_ranks ranks, the estimate is that of the leading one, which also
  // writes the checkpoints.
  int64_t data_ranks = 1;         // that share out the parts of a batch: a divisor of micro_batches
  int64_t sequence_ranks = 1;     // that share out the tokens of each sequence
  bool shares_optimizer = false;  // Optimizer::share()

  int64_t ranks() const { return data_ranks * sequence_ranks; }
  /// The number of sequences that are processed at a time in training.
  int64_t micro_batch_size() const { return (batch_size + micro_batches - 1) / micro_batches; }
};

/// The request of a plan. `counted` and the size of the data are those of `task` where it has been
/// made, otherwise what its options say; without a training split the request is for evaluation.
MemoryRequest memory_request(const Plan& plan, const data::Task* task);

/// Bytes, in double: they may exceed every integer. The parts are those at the peak of the run;
/// activations include scratch memory, and are those of a training step or of an evaluation, of
/// which the larger counts.
struct MemoryEstimate {
  double parameters = 0;  // also buffers, such as random features
  double gradients = 0;   // also sums of those of micro-batches
  double optimizer = 0;   // its state, and the averaged weights
  double training = 0;    // activations of a step, besides all gradients
  double evaluation = 0;  // activations of an evaluation
  double data = 0;        // examples in memory, their order, and batches
  double teacher = 0;
  double checkpoint = 0;  // the image of a checkpoint, twice, while it is written, and what of it
                          // the allocator does not return
  double parameter_count = 0;

  /// Of a step or an evaluation: gradients and activations.
  double work() const;
  double total() const;
};

/// Resident memory of a process besides what is estimated: code, libraries, stacks and the scratch
/// memory of a few threads. The smallest run takes 29 MiB.
inline constexpr double program_memory = 36.0 * (1 << 20);
/// What MPI adds to it.
inline constexpr double mpi_memory = 11.0 * (1 << 20);

MemoryEstimate estimate_memory(const MemoryRequest& request);

/// The memory that this process can have, and what limits it: the least of 90 % of the machine's memory
/// (the rest is left to the system and the cache of files), the limits of its control groups (v1 and
/// v2), and half of a limit to its addresses (ulimit -v), of which the other half is left to libraries
/// and stacks.
struct MemoryLimit {
  double bytes = 0;
  std::string what;  // "this machine"
};
MemoryLimit machine_memory();

/// The limit of a request: its own, or machine_memory().
MemoryLimit memory_limit(const MemoryRequest& request);

/// Throws ConfigError if the estimate with program_memory exceeds the limit. The message says which
/// options cause it, and for each, alone, which value would fit.
void check_memory(const MemoryRequest& request);

/// "41 GiB", "350 MiB", with two to three digits.
std::string bytes_text(double bytes);

/// One line: "memory: about 350 MiB of 23 GiB (parameters 1.2 MiB, …)".
std::string memory_line(const MemoryEstimate& estimate, const MemoryLimit& limit);
/// The parts with their names, the total, and what is available, in bytes.
std::vector<std::pair<std::string, double>> memory_parts(const MemoryEstimate& estimate,
                                                         const MemoryLimit& limit);

}  // namespace longhand::train
