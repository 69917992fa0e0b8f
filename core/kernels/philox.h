// Random words in bulk.
#pragma once

#include <cstdint>

#include "longhand/core/random.h"

namespace longhand::kernels {

/// words[4 i + k] = word k of Generator::from_state(state).block(first + i), for 0 <= i < blocks.
/// Several times as fast as block(). Must not be called inside simd(): it selects the instruction
/// set itself.
void philox_words(Generator::State state, uint64_t first, int64_t blocks, uint32_t* words);

}  // namespace longhand::kernels
