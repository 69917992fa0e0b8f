// Bench: what a training step and attention alone cost in time and memory, beside what the machine
// could do.
#pragma once

#include <cstdint>
#include <functional>

#include "longhand/train/config.h"

namespace longhand::train {

/// What a computation must do, however it is written.
struct Work {
  double flops = 0;  // a multiply-add is two
  double exps = 0;
  double bytes = 0;  // to and from memory
};

/// What this machine does in a second, with threads() threads.
struct Machine {
  double flops = 0;  // of single-precision matrix products
  double exps = 0;   // of numbers in the first cache
  double bytes = 0;  // read and written by y <- a x + y, far beyond the caches
};

/// Seconds that this machine needs at least, if nothing overlaps: flops / peak + exps / rate +
/// bytes / bandwidth.
double limit(const Work& work, const Machine& machine);

struct BenchOptions {
  int64_t repetitions = 0;  // timed ones; 0: as many as `seconds` allow, but at least three
  double seconds = 1;
  uint64_t seed = 0;
  bool recompute = false;  // of training steps: nn::Pass::recompute
  /// Called between repetitions with their number so far and how many there will be.
  std::function<void(int64_t done, int64_t all)> on_progress = {};
};

/// Of all repetitions after two that are not counted.
struct BenchResult {
  double seconds = 0;          // median, of forward and backward together, and of the optimizer
  double seconds_forward = 0;  // median
  int64_t repetitions = 0;
  int64_t parameters = 0;
  double page_faults = 0;   // mean, of the process
  int64_t peak_memory = 0;  // resident bytes, of the process so far
  Work work, work_forward;
  /// Medians of what it did in turns with the repetitions, so that a machine whose speed changes
  /// while it is measured, as others use it too, changes both alike; the bandwidth after them,
  /// since that takes 128 MiB.
  Machine machine;
};

/// Throws ConfigError for a configuration that bench_step() or, with `attention_alone`,
/// bench_attention() would refuse. Makes nothing.
void check_bench(const Config& config, bool attention_alone);

/// The training step of the model that [model] and [attention] describe, with the [optimizer]
/// (adam if not given), on `batch` sequences of model.max_length random tokens and random targets.
/// Throws ConfigError.
BenchResult bench_step(const Config& config, int64_t batch, const BenchOptions& options);

/// Its attention alone, as one layer has it, between random queries, keys and values and a random
/// gradient: `parameters` are the variant's own.
BenchResult bench_attention(const Config& config, int64_t batch, const BenchOptions& options);

}  // namespace longhand::train
