// The cost of decoding: time per token and size of the state as functions of the number of tokens
// so far.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhand/train/config/config.h"

namespace longhand::train {

/// The cost of one token in the attention of one layer, after `context` tokens per sequence.
struct DecodeCost {
  int64_t context = 0;
  double seconds = 0, seconds_low = 0, seconds_high = 0;  // for the whole batch: median, quartiles
  int64_t state_bytes = 0;                                // per sequence
  /// The minimum seconds on this machine: for the bytes of Decoder::traffic() and of the
  /// parameters, or for the operations by the formulas, whichever takes longer.
  double limit = 0;
  bool memory_bound = false;  // whether the bytes take longer
};

struct DecodeOptions {
  std::vector<int64_t> contexts{64, 256, 1024, 4096, 16384, 65536};  // increasing
  int64_t batch = 1;
  double seconds = 0.1;      // of steps, per context
  double fill_seconds = 60;  // at most, to fill the state with a context
  uint64_t seed = 0;
  std::function<void(int64_t context)> on_context = {};  // called before each one
};

/// Returns model.max_length for bench_decode(): the contexts, plus the steps measured after them.
int64_t decode_length(const DecodeOptions& options);

/// Throws ConfigError for what bench_decode() would refuse: a variant without a decoder, a model
/// that is not causal or whose layers differ, contexts that do not increase, and states that exceed
/// this machine's memory.
void check_decode(const Config& config, const DecodeOptions& options);

/// Measures the decoder of one layer's attention in the model that [model] and [attention]
/// describe, on random tokens. Contexts are filled by Decoder::append(). If the state no longer
/// grows after 1,024 tokens, no more are appended, since every later token costs the same. The
/// result ends before the first context that takes longer than fill_seconds to fill: some variants
/// change their whole state with each token.
///
/// The machine's rates are measured next to the steps. The memory rate comes from reading, or
/// reading and writing, as many bytes as the state and parameters have, at most 256 MiB, so that
/// cached data is compared with that cache. Parameters that belong to positions are not counted.
std::vector<DecodeCost> bench_decode(const Config& config, const DecodeOptions& options);

}  // namespace longhand::train
