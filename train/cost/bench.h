// Bench: time and memory of a training step or of attention alone, compared with the limits of the
// hardware.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/train/config/config.h"

namespace longhand::train {

/// The work of a computation, independent of its implementation.
struct Work {
  double flops = 0;  // a multiply-add counts as two
  double exps = 0;
  double bytes = 0;  // traffic to and from memory
};

/// What this machine achieves per second with threads() threads.
struct Machine {
  double flops = 0;  // f32 matrix products, by the faster of OpenBLAS and gemm_panels()
  double exps = 0;   // on data in the L1 cache
  double bytes = 0;  // read and written by y <- a x + y, on data much larger than the caches
};

/// Returns the minimum seconds this machine needs if nothing overlaps: flops / peak + exps / rate +
/// bytes / bandwidth.
double limit(const Work& work, const Machine& machine);
/// The first two rates, each measured for at least this many seconds.
double products_per_second(double at_least);
double exps_per_second(double at_least);
Work operator*(double factor, const Work& work);
Work operator+(const Work& a, const Work& b);

/// The work of a training step, by the formulas of its layers and variants.
struct StepWork {
  Work forward, backward;  // except attention, with all memory traffic
  Work attention_forward, attention_backward;
  Work optimizer;  // for all parameters

  Work attention() const { return attention_forward + attention_backward; }
  Work rest() const { return forward + backward + optimizer; }
  Work total() const { return rest() + attention(); }
};
/// Returns the work of one of `sequence_ranks` ranks that share each sequence, for a model with
/// this number of parameters on `batch` sequences of model.max_length tokens.
StepWork step_work(const attention::TransformerConfig& model, double batch, double parameters,
                   int64_t sequence_ranks = 1);
/// Returns the bytes that decoding keeps for a sequence of model.max_length tokens, in all layers;
/// 0 if the model is not causal or a variant has no decoder.
int64_t decoding_bytes(const attention::TransformerConfig& model);

/// Returns random integers in [0, below), such as tokens, in i32.
Tensor random_ids(const Shape& shape, int64_t below, const Generator& generator);

struct BenchOptions {
  int64_t repetitions = 0;  // timed; 0: as many as fit into `seconds`, at least three
  double seconds = 1;
  uint64_t seed = 0;
  bool recompute = false;  // in training steps: nn::Pass::recompute
  /// Called between repetitions with the number done and the total.
  std::function<void(int64_t done, int64_t all)> on_progress = {};
};

/// Measurements over all repetitions, after two warm-up repetitions.
struct BenchResult {
  double seconds = 0;                        // median, of forward, backward and optimizer together
  double seconds_low = 0, seconds_high = 0;  // quartiles
  double seconds_forward = 0;                // median
  int64_t repetitions = 0;
  int64_t parameters = 0;
  double page_faults = 0;   // mean, of the process
  int64_t peak_memory = 0;  // resident bytes, of the process so far
  int64_t allocated = 0;  // bytes of tensors at the peak of the process, without code and libraries
  StepWork work;
  /// Medians of rates measured alternately with the repetitions, so that changes in a shared
  /// machine's speed affect both equally. The bandwidth is measured afterwards, because it needs
  /// 128 MiB.
  Machine machine;
};

/// Throws ConfigError for a configuration that bench_step() or, with `attention_alone`,
/// bench_attention() would refuse. Constructs nothing.
void check_bench(const Config& config, bool attention_alone);

/// Measures the training step of the model that [model] and [attention] describe, with the
/// [optimizer] (default: adam), on `batch` sequences of model.max_length random tokens with random
/// targets. Throws ConfigError.
BenchResult bench_step(const Config& config, int64_t batch, const BenchOptions& options);

/// Median seconds of a forward pass in evaluation mode, and of a training step with Adam.
struct ModelSeconds {
  double forward = 0, step = 0;
};
/// Times models alternately, each on `batch` sequences of max_length random tokens, so that changes
/// in a shared machine's speed affect all equally. BenchOptions::seconds is the time per model.
std::vector<ModelSeconds> compare_models(const std::vector<attention::TransformerConfig>& models,
                                         int64_t batch, const BenchOptions& options);

/// Measures the attention of one layer on random queries, keys, values and gradients; `parameters`
/// counts the variant's parameters.
BenchResult bench_attention(const Config& config, int64_t batch, const BenchOptions& options);

}  // namespace longhand::train
