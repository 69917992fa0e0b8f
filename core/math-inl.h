// Bodies of math.h.
#pragma once

namespace longhand::math {

inline float exp(float x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2; e^x = 2^n e^r. Adding 1.5 * 2^23 rounds x / ln 2 to the
  // integer n, which then stands in the low bits: no conversion, so NaN is no special case.
  const float shifted = std::fma(x, 1.44269504f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  float r = std::fma(n, -0x1.62e4p-1f, x);  // ln 2 in two parts: the first times n is exact
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 720;
  p = std::fma(p, r, 1.0f / 120);
  p = std::fma(p, r, 1.0f / 24);
  p = std::fma(p, r, 1.0f / 6);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p * r, r, r) + 1;
  const uint32_t scaled = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  const float y = std::bit_cast<float>(scaled);
  const float high = x > 88.72283f ? std::numeric_limits<float>::infinity() : y;
  const float low = x < -87.33654f ? 0 : high;
  return x != x ? x : low;
}

inline double exp(double x) { return std::exp(x); }
inline float tanh(float x) { return std::tanh(x); }
inline double tanh(double x) { return std::tanh(x); }
inline float erf(float x) { return std::erf(x); }
inline double erf(double x) { return std::erf(x); }

}  // namespace longhand::math
