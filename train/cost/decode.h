// The cost of decoding: the time of a token and the size of the state, against the number of tokens so
// far.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhand/train/config/config.h"

namespace longhand::train {

/// What a token costs in the attention of one layer, after `context` tokens of each sequence.
struct DecodeCost {
  int64_t context = 0;
  double seconds = 0, seconds_low = 0, seconds_high = 0;  // of the whole batch: median, quartiles
  int64_t state_bytes = 0;                                // of one sequence
  /// The least seconds that this machine needs: for the bytes of Decoder::traffic() and of the
  /// parameters, or for the operations of the formulas, whichever takes longer.
  double limit = 0;
  bool memory_bound = false;  // the bytes take longer
};

struct DecodeOptions {
  std::vector<int64_t> contexts{64, 256, 1024, 4096, 16384, 65536};  // increasing
  int64_t batch = 1;
  double seconds = 0.1;  // of steps, for each context
  uint64_t seed = 0;
  std::function<void(int64_t context)> on_context = {};  // called before each
};

/// model.max_length for bench_decode(): the contexts, and the steps measured after them.
int64_t decode_length(const DecodeOptions& options);

/// Throws ConfigError for what bench_decode() would refuse: a variant without a decoder, a model whose
/// layers differ or that is not causal, contexts that do not increase, and states that exceed the memory
/// of this machine.
void check_decode(const Config& config, const DecodeOptions& options);

/// Measures the decoder of the attention of one layer of the model that [model] and [attention]
/// describe, on random tokens. A context is reached by Decoder::append(). If the state no longer grows
/// after 1,024 tokens, no more than these are appended: every later token costs the same.
///
/// The rates of the machine are measured next to the steps: those of its memory by reading, or reading
/// and writing, as many bytes as the state and the parameters have, at most 256 MiB, so that what is in
/// a cache is compared with that cache. Parameters that belong to positions are not counted.
std::vector<DecodeCost> bench_decode(const Config& config, const DecodeOptions& options);

}  // namespace longhand::train
