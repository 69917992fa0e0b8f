// Memory: what a run will need, from its configuration alone, and what the machine has.
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

/// A plan with what is known about its data. Sizes may be far too large for this machine; an
/// evaluation batch of 0 sequences means no evaluation.
struct MemoryRequest : Plan {
  bool trains = true;  // otherwise the model only evaluates
  bool saves = true;   // checkpoints
  /// The share of per-token targets that count: if at most half count, the head computes only their
  /// logits.
  double counted = 1;
  bool padded = false;  // some sequences of a batch are shorter than others

  /// The parts in which a batch is processed if this many ranks share it, and their largest size.
  int64_t micro_batches(int64_t data_ranks = 1) const;
  int64_t micro_batch_size(int64_t data_ranks = 1) const;
};

/// Returns the request of a plan. `counted` and the data size are those of `task` if it exists,
/// otherwise derived from its options; without a training split, the request is for evaluation.
MemoryRequest memory_request(const Plan& plan, const data::Task* task);

/// Sizes in bytes, as double since they may exceed every integer. The parts are those at the peak
/// of the run. Activations include scratch memory and what the allocator cannot use; those of a
/// training step or of an evaluation count, whichever are larger.
struct MemoryEstimate {
  double parameters = 0;  // including buffers, such as random features
  double gradients = 0;   // including sums over micro-batches
  double optimizer = 0;   // optimizer state and averaged weights
  double training = 0;    // activations of a step, excluding all gradients
  double evaluation = 0;  // activations of an evaluation
  double data = 0;        // examples in memory, their order, and batches
  double teacher = 0;
  double checkpoint = 0;       // two images of a checkpoint while it is written
  double parameter_count = 0;  // 0: too many
  std::vector<double> sent{};  // RanksOfEstimate::sent() of a step
  double repeats = 1;          // micro-batches per simulated one
  bool exceeds = false;        // stopped at several times the request's limit

  /// Gradients and activations of a step or an evaluation.
  double work() const;
  double total() const;
};

/// Resident memory of a process that is not estimated: code, libraries, stacks and the scratch
/// memory of a few threads. The smallest run uses 29 MiB.
inline constexpr double program_memory = 32.0 * (1 << 20);
/// Additional memory for MPI.
inline constexpr double mpi_memory = 11.0 * (1 << 20);

/// The ranks of a run; the estimate is for the leading one.
struct RanksOfEstimate {
  const Reducer& reducer = one_process();
  /// Returns what they have sent so far, as numbers that add up over a step.
  std::function<std::vector<double>()> sent = {};
};

/// Builds the model, takes a training step, evaluates a batch and saves a checkpoint in a DryRun,
/// so the estimate comes from the actual code, with every option and for plugin variants. With very
/// many layers, sequences or micro-batches, only some are run. Throws ConfigError for a model that
/// cannot be constructed.
MemoryEstimate estimate_memory(const MemoryRequest& request, const RanksOfEstimate& ranks = {});

/// The memory available to this process, and what limits it: the minimum of 90 % of the machine's
/// memory (the rest is left to the system and the page cache), its control groups' limits (v1 and
/// v2), and half of its address space limit (ulimit -v), whose other half is left to libraries and
/// stacks.
struct MemoryLimit {
  double bytes = 0;
  std::string what;  // "this machine"
};
MemoryLimit machine_memory();

/// Returns the bytes that new processes may use without swapping: the kernel's estimate of
/// available memory, limited to what this process's control groups leave. 0 if unknown.
int64_t available_memory();

/// Returns the limit of a request: its own, or machine_memory().
MemoryLimit memory_limit(const MemoryRequest& request);

/// Returns the estimate. Throws ConfigError if it exceeds the limit, including program_memory; the
/// message names the options that cause this and, for each alone, a value that would fit.
MemoryEstimate check_memory(const MemoryRequest& request);

/// Formats a size with two to three digits: "41 GiB", "350 MiB".
std::string bytes_text(double bytes);

/// Returns one line: "memory: about 350 MiB of 23 GiB (parameters 1.2 MiB, …)".
std::string memory_line(const MemoryEstimate& estimate, const MemoryLimit& limit);
/// Returns the parts by name, the total, and what is available, in bytes.
std::vector<std::pair<std::string, double>> memory_parts(const MemoryEstimate& estimate,
                                                         const MemoryLimit& limit);

}  // namespace longhand::train
