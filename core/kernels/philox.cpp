// Philox4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3. A
// round maps (c0, c1, c2, c3) to (high(q) ^ c1 ^ k0, low(q), high(p) ^ c3 ^ k1, low(p)) with the
// 64-bit products p = M0 c0, q = M1 c2; then (W0, W1) is added to the key (k0, k1).
#include "longhand/core/kernels/philox.h"

#include <algorithm>

#include "longhand/core/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace longhand::kernels {
namespace {

#if defined(__x86_64__)
constexpr uint32_t M0 = 0xd2511f53u, M1 = 0xcd9e8d57u, W0 = 0x9e3779b9u, W1 = 0xbb67ae85u;
constexpr int rounds = 10;

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

constexpr int vectors = 3;  // independent dependency chains, which overlap
constexpr int64_t blocks_at_once = 4 * vectors;

// Intrinsics, since compilers generate slow code for 32 x 32 -> 64 bit products (2.2 ns per word
// instead of 0.8). Each c is the low half of a 64-bit lane; the multiplication reads nothing else,
// so the high halves may hold anything.
[[gnu::target("avx2")]] void words_of_blocks(Generator::State state, uint64_t first,
                                             uint32_t* words) {
  const __m256i m0 = _mm256_set1_epi64x(M0), m1 = _mm256_set1_epi64x(M1);
  __m256i c0[vectors], c1[vectors], c2[vectors], c3[vectors];
  for (int v = 0; v < vectors; ++v) {
    // With this order of lanes, the final unpacking yields blocks 0, 1 and 2, 3.
    const __m256i index = _mm256_set_epi64x(4 * v + 3, 4 * v + 1, 4 * v + 2, 4 * v);
    c0[v] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)), index);
    c1[v] = _mm256_srli_epi64(c0[v], 32);
    c2[v] = _mm256_set1_epi64x(low(state.stream));
    c3[v] = _mm256_set1_epi64x(high(state.stream));
  }
  uint32_t key0 = low(state.key), key1 = high(state.key);
  for (int round = 0; round < rounds; ++round, key0 += W0, key1 += W1) {
    const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
    for (int v = 0; v < vectors; ++v) {
      const __m256i p = _mm256_mul_epu32(c0[v], m0), q = _mm256_mul_epu32(c2[v], m1);
      c0[v] = _mm256_xor_si256(_mm256_srli_epi64(q, 32), _mm256_xor_si256(c1[v], k0));
      c1[v] = q;
      c2[v] = _mm256_xor_si256(_mm256_srli_epi64(p, 32), _mm256_xor_si256(c3[v], k1));
      c3[v] = p;
    }
  }
  for (int v = 0; v < vectors; ++v) {
    const __m256i a = _mm256_blend_epi32(c0[v], _mm256_slli_epi64(c1[v], 32), 0b10101010);
    const __m256i b = _mm256_blend_epi32(c2[v], _mm256_slli_epi64(c3[v], 32), 0b10101010);
    auto* const to = reinterpret_cast<__m256i*>(words + 16 * v);
    _mm256_storeu_si256(to, _mm256_unpacklo_epi64(a, b));
    _mm256_storeu_si256(to + 1, _mm256_unpackhi_epi64(a, b));
  }
}
#endif

}  // namespace

void philox_words(Generator::State state, uint64_t first, int64_t blocks, uint32_t* words) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (isa() != Isa::baseline)
    for (; i + blocks_at_once <= blocks; i += blocks_at_once)
      words_of_blocks(state, first + static_cast<uint64_t>(i), words + 4 * i);
#endif
  for (; i < blocks; ++i)
    std::ranges::copy(Generator::from_state(state).block(first + static_cast<uint64_t>(i)),
                      words + 4 * i);
}

}  // namespace longhand::kernels
