// Bench: time and memory of a training step or of attention alone, next to what the hardware could
// achieve.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/train/config/config.h"

namespace longhand::train {

/// The work of a computation, however it is implemented.
struct Work {
  double flops = 0;  // a multiply-add counts as two
  double exps = 0;
  double bytes = 0;  // to and from memory
};

/// What this machine achieves per second, with threads() threads.
struct Machine {
  double flops = 0;  // of f32 matrix products, by OpenBLAS or by gemm_panels(): the faster
  double exps = 0;   // on data in the L1 cache
  double bytes = 0;  // read and written by y <- a x + y, on data much larger than the caches
};

/// Least seconds this machine needs if nothing overlaps: flops / peak + exps / rate + bytes /
/// bandwidth.
double limit(const Work& work, const Machine& machine);
/// The first two rates, each measured for at least this number of seconds.
double products_per_second(double at_least);
double exps_per_second(double at_least);
Work operator*(double factor, const Work& work);
Work operator+(const Work& a, const Work& b);

/// The work of a training step, which is that of the formulas of its layers and variants.
struct StepWork {
  Work forward, backward;  // besides attention, with all memory traffic
  Work attention_forward, attention_backward;
  Work optimizer;  // of all parameters

  Work attention() const { return attention_forward + attention_backward; }
  Work rest() const { return forward + backward + optimizer; }
  Work total() const { return rest() + attention(); }
};
/// Of a model with this number of parameters, on `batch` sequences of model.max_length tokens: what one of
/// `sequence_ranks` does, over which each sequence is cut.
StepWork step_work(const attention::TransformerConfig& model, double batch, double parameters,
                   int64_t sequence_ranks = 1);
/// Bytes that decoding keeps for one sequence of model.max_length tokens, in all layers; 0 if the
/// model is not causal or a variant has no decoder.
int64_t decoding_bytes(const attention::TransformerConfig& model);

/// Random integers from 0 to below `below`, such as tokens, in i32.
Tensor random_ids(const Shape& shape, int64_t below, const Generator& generator);

struct BenchOptions {
  int64_t repetitions = 0;  // timed ones; 0: as many as fit into `seconds`, at least three
  double seconds = 1;
  uint64_t seed = 0;
  bool recompute = false;  // of training steps: nn::Pass::recompute
  /// Called between repetitions with the number done and the total.
  std::function<void(int64_t done, int64_t all)> on_progress = {};
};

/// Measured over all repetitions after two that are not counted.
struct BenchResult {
  double seconds = 0;  // median, of forward and backward together, and of the optimizer
  double seconds_low = 0, seconds_high = 0;  // quartiles
  double seconds_forward = 0;                // median
  int64_t repetitions = 0;
  int64_t parameters = 0;
  double page_faults = 0;   // mean, of the process
  int64_t peak_memory = 0;  // resident bytes, of the process so far
  int64_t allocated = 0;  // bytes of tensors at the peak of the process, without code and libraries
  StepWork work;
  /// Medians of rates measured alternately with the repetitions, so that changes in the speed of a
  /// shared machine affect both in the same way; the bandwidth is measured afterwards, because that
  /// takes 128 MiB.
  Machine machine;
};

/// Throws ConfigError for a configuration that bench_step() or, with `attention_alone`,
/// bench_attention() would refuse. Constructs nothing.
void check_bench(const Config& config, bool attention_alone);

/// Measures the training step of the model that [model] and [attention] describe, with the
/// [optimizer] (adam if not given), on `batch` sequences of model.max_length random tokens and
/// random targets.
/// Throws ConfigError.
BenchResult bench_step(const Config& config, int64_t batch, const BenchOptions& options);

/// Median seconds of a forward pass as in evaluation, and of a training step with Adam.
struct ModelSeconds {
  double forward = 0, step = 0;
};
/// Times models in turn, on `batch` sequences of max_length random tokens each: changes in the speed
/// of a shared machine affect all of them in the same way. BenchOptions::seconds is the time for each.
std::vector<ModelSeconds> compare_models(const std::vector<attention::TransformerConfig>& models,
                                         int64_t batch, const BenchOptions& options);

/// Measures the attention of one layer alone, on random queries, keys and values and a random
/// gradient; `parameters` counts those of the variant.
BenchResult bench_attention(const Config& config, int64_t batch, const BenchOptions& options);

}  // namespace longhand::train
