// Lanes: tiles are stored with tokens along the vector lanes. Loops over lanes, powers and
// logarithms, and the transposition that packs rows of tokens into lanes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "longhand/core/dtype.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/math.h"
#include "longhand/core/simd.h"

namespace longhand::attention::tile {

/// The row length of a tile is a multiple of this number of tokens.
inline constexpr int64_t lane_multiple = 16;
inline int64_t whole_lanes(int64_t tokens) {
  return (tokens + lane_multiple - 1) / lane_multiple * lane_multiple;
}

/// Calls f(i) for each lane, inside simd(). Lanes must be independent: the compiler may assume that
/// f(i) reads nothing that another f(j) writes. Whole vectors only, without a remainder loop.
template <class F>
void for_lanes(int64_t lanes, F f) {
  for (int64_t first = 0; first < lanes; first += lane_multiple)
#pragma GCC ivdep
#pragma GCC unroll 1
    for (int64_t i = first; i < first + lane_multiple; ++i) f(i);
}

/// e^x and log x for T. f32 uses powers of 2: exponents are multiplied by `log_e` = log2 e
/// beforehand.
template <class T>
struct Base;
template <>
struct Base<double> {
  static constexpr double log_e = 1;
  static double power(double x) { return math::exp(x); }
  static double power_of_sum(double x) { return math::exp(x); }
  static double log(double x) { return std::log(x); }
};
template <>
struct Base<float> {
  static constexpr double log_e = std::numbers::log2e;
  // 2^x for x <= 1, within 2.2e-7 of it; exactly 1 for 0; 0 below the normal numbers; NaN for NaN.
  static float power(float x) {
    const float shifted =
        x + 0x1.8p23f;  // rounds x to an integer, in the low bits (see math-inl.h)
    return power(x, shifted, x - (shifted - 0x1.8p23f));
  }
  // The same for x so large in magnitude that f32 would lose accuracy.
  static float power_of_sum(double x) {
    x = std::max(x, -200.0);
    const double n = (x + 0x1.8p52) - 0x1.8p52;
    const auto whole = static_cast<float>(n), f = static_cast<float>(x - n);
    return power(whole + f, whole + 0x1.8p23f, f);
  }
  static float log(float x) { return std::log2(x); }

 private:
  // 2^x for the integer in `shifted`, and f between it and x.
  static float power(float x, float shifted, float f) {
    const float y = math::detail::horner(f, 0.00132764727f, 0.00967554133f, 0.0555071327f,
                                         0.240221197f, 0.693146967f, 1.0f);
    const float z =
        std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(shifted) << 23));
    return x < -126 ? 0 : z;
  }
};

inline double log_e_of(DType dtype) {
  return dtype == DType::f32 ? Base<float>::log_e : Base<double>::log_e;
}

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

/// to[d lanes + i] = factor from[i token + d] for the whole lanes of `count` tokens, with zeros in
/// lanes from `count` on.
template <class T>
void pack_transposed(const T* from, int64_t token, int64_t count, int64_t D, T factor, T* to) {
  const int64_t lanes = whole_lanes(count);
  kernels::transpose_into(count, D, from, token, factor, to, lanes, false);
  if (count < lanes)
    for (int64_t d = 0; d < D; ++d) std::fill(to + d * lanes + count, to + (d + 1) * lanes, T{0});
}

}  // namespace longhand::attention::tile
