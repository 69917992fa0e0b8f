// Many random words at once, for use inside simd().
#pragma once

#include <cstdint>

#include "longhand/core/random.h"

namespace longhand::kernels {

/// words[4 i + k] = word k of Generator::from_state(state).block(first + i), for 0 <= i < blocks.
/// Philox4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
inline void philox_words(Generator::State state, uint64_t first, int64_t blocks, uint32_t* words) {
  for (int64_t i = 0; i < blocks; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
    uint32_t c2 = static_cast<uint32_t>(state.stream), c3 = static_cast<uint32_t>(state.stream >> 32);
    uint32_t k0 = static_cast<uint32_t>(state.key), k1 = static_cast<uint32_t>(state.key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p = uint64_t{0xd2511f53u} * c0, q = uint64_t{0xcd9e8d57u} * c2;
      c0 = static_cast<uint32_t>(q >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(q);
      c2 = static_cast<uint32_t>(p >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p);
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    words[4 * i] = c0;
    words[4 * i + 1] = c1;
    words[4 * i + 2] = c2;
    words[4 * i + 3] = c3;
  }
}

}  // namespace longhand::kernels
