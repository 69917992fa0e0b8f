// Memory: what a run will take, from its configuration alone, and what the machine has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/train/config/sections.h"
#include "longhand/train/step/reducer.h"

namespace longhand::train {

/// A plan, with what is known of its data. Sizes may be far too large for this machine; a batch of
/// evaluation of 0 sequences stands for none.
struct MemoryRequest : Plan {
  bool trains = true;  // otherwise the model only evaluates
  bool saves = true;   // checkpoints
  /// The share of the targets of tokens that count: the head computes logits of these alone if they
  /// are at most half.
  double counted = 1;
  bool padded = false;  // some sequences of a batch are shorter than others

  /// The parts in which a batch is processed, if so many ranks share it, and their largest size.
  int64_t micro_batches(int64_t data_ranks = 1) const;
  int64_t micro_batch_size(int64_t data_ranks = 1) const;
};

/// The request of a plan. `counted` and the size of the data are those of `task` where it has been
/// made, otherwise what its options say; without a training split the request is for evaluation.
MemoryRequest memory_request(const Plan& plan, const data::Task* task);

/// Bytes, in double: they may exceed every integer. The parts are those at the peak of the run;
/// activations include scratch memory and what the allocator cannot use, and are those of a training step
/// or of an evaluation, of which the larger counts.
struct MemoryEstimate {
  double parameters = 0;  // also buffers, such as random features
  double gradients = 0;   // also sums of those of micro-batches
  double optimizer = 0;   // its state, and the averaged weights
  double training = 0;    // activations of a step, besides all gradients
  double evaluation = 0;  // activations of an evaluation
  double data = 0;        // examples in memory, their order, and batches
  double teacher = 0;
  double checkpoint = 0;       // the image of a checkpoint, twice, while it is written
  double parameter_count = 0;  // 0: too many
  std::vector<double> sent{};  // RanksOfEstimate::sent() of a step
  double repeats = 1;          // the number of micro-batches for each that was run
  bool exceeds = false;  // several times what the request may take, which was not followed further

  /// Of a step or an evaluation: gradients and activations.
  double work() const;
  double total() const;
};

/// Resident memory of a process besides what is estimated: code, libraries, stacks and the scratch
/// memory of a few threads. The smallest run takes 29 MiB.
inline constexpr double program_memory = 32.0 * (1 << 20);
/// What MPI adds to it.
inline constexpr double mpi_memory = 11.0 * (1 << 20);

/// The ranks of a run, of which the estimate is that of the leading one.
struct RanksOfEstimate {
  const Reducer& reducer = one_process();
  /// What they have sent so far, in numbers that are added up over a step.
  std::function<std::vector<double>()> sent = {};
};

/// Builds the model, takes a training step, evaluates a batch and saves a checkpoint, in a DryRun: so the
/// estimate is that of the code itself, with every option and for variants of plugins. Of very many
/// layers, sequences or micro-batches only some are run. Throws ConfigError for a model that cannot be
/// constructed.
MemoryEstimate estimate_memory(const MemoryRequest& request, const RanksOfEstimate& ranks = {});

/// The memory that this process can have, and what limits it: the least of 90 % of the machine's memory
/// (the rest is left to the system and the cache of files), the limits of its control groups (v1 and
/// v2), and half of a limit to its addresses (ulimit -v), of which the other half is left to libraries
/// and stacks.
struct MemoryLimit {
  double bytes = 0;
  std::string what;  // "this machine"
};
MemoryLimit machine_memory();

/// Bytes of memory that new processes may use without swapping: what the kernel estimates to be
/// available, at most what the limits of the control groups of this one leave. 0 if unknown.
int64_t available_memory();

/// The limit of a request: its own, or machine_memory().
MemoryLimit memory_limit(const MemoryRequest& request);

/// Returns the estimate. Throws ConfigError if it exceeds the limit, with program_memory. The message says which
/// options cause it, and for each, alone, which value would fit.
MemoryEstimate check_memory(const MemoryRequest& request);

/// "41 GiB", "350 MiB", with two to three digits.
std::string bytes_text(double bytes);

/// One line: "memory: about 350 MiB of 23 GiB (parameters 1.2 MiB, …)".
std::string memory_line(const MemoryEstimate& estimate, const MemoryLimit& limit);
/// The parts with their names, the total, and what is available, in bytes.
std::vector<std::pair<std::string, double>> memory_parts(const MemoryEstimate& estimate,
                                                         const MemoryLimit& limit);

}  // namespace longhand::train
