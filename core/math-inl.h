// Definitions for math.h.
//
// The coefficients are our own minimax fits: Remez exchange in 200-bit arithmetic on the error
// stated with each. The lowest powers are rounded first and the others fitted again.
#pragma once

#include "longhand/core/math.h"

namespace longhand::math {
namespace detail {

/// ((high x + c0) x + c1) x + …
template <class T, class... C>
T horner(T x, T high, C... c) {
  ((high = std::fma(high, x, c)), ...);
  return high;
}

// (e^r - 1 - r) / r² for |r| <= ln 2 / 2. The relative error of e^r is 2^-28 (f32), 2^-57 (f64).
inline float exp_tail(float r) {
  return horner(r, 0.00138390250f, 0.00836919621f, 0.0416681021f, 0.166665167f, 0.499999940f);
}
inline double exp_tail(double r) {
  return horner(r, 0x1.add005797a12ap-26, 0x1.28aeac2586cd3p-22, 0x1.71def6b00bb31p-19,
                0x1.a01998ac906a7p-16, 0x1.a01a013ccecc5p-13, 0x1.6c16c184aefcfp-10,
                0x1.1111111124da9p-7, 0x1.5555555550612p-5, 0x1.5555555555503p-3,
                0x1.000000000000ap-1);
}

template <class T>
struct ExpFormat;
template <>
struct ExpFormat<float> {
  using Bits = uint32_t;
  static constexpr int fraction_bits = 23;
  static constexpr float round = 0x1.8p23f;
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  static constexpr float low = -87.33654f, high = 88.72283f;  // results are normal in between
};
template <>
struct ExpFormat<double> {
  using Bits = uint64_t;
  static constexpr int fraction_bits = 52;
  static constexpr double round = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42fefap-1, ln2_low = 0x1.cf79abc9e3b3ap-40;
  static constexpr double low = -708.3964185322641, high = 709.782712893384;
};

/// e^x = 2^n (1 + m) with integer n and |m| < 0.42.
template <class T>
struct ExpParts {
  T m;
  typename ExpFormat<T>::Bits exponent;  // n, shifted to the exponent field of a T
};

template <class T>
ExpParts<T> exp_parts(T x) {
  using F = ExpFormat<T>;
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 (2^52) rounds x / ln 2 to the integer n
  // and leaves n in the low bits: without a conversion, NaN and infinity need no special case.
  const T shifted = std::fma(x, std::numbers::log2e_v<T>, F::round);
  const T n = shifted - F::round;
  // ln 2 is split in two parts, since x - n ln 2 cancels: the first has few enough bits for its
  // product with n to be exact.
  T r = std::fma(n, -F::ln2_high, x);
  r = std::fma(n, -F::ln2_low, r);
  return {std::fma(exp_tail(r) * r, r, r), std::bit_cast<typename F::Bits>(shifted)
                                               << F::fraction_bits};
}

template <class T>
T exp(T x) {
  using F = ExpFormat<T>;
  const ExpParts<T> parts = exp_parts(x);
  // n is added to the exponent field, since 2^128 itself is not representable.
  const T y = std::bit_cast<T>(std::bit_cast<typename F::Bits>(1 + parts.m) + parts.exponent);
  const T high = x > F::high ? std::numeric_limits<T>::infinity() : y;
  const T low = x < F::low ? T{0} : high;
  return x != x ? x : low;
}

// (log(1 + f) - 2 s) / (s z) for s = f / (2 + f), z = s² and 1 + f between sqrt(1/2) and sqrt 2.
// The relative error of the logarithm is 2^-35 (f32), 2^-59 (f64).
inline float log_tail(float z) {
  return horner(z, 0.242788568f, 0.284987926f, 0.400009722f, 0.666666627f);
}
inline double log_tail(double z) {
  return horner(z, 0x1.2f03ba61bd038p-3, 0x1.39a1e8c5740d3p-3, 0x1.74663ced8598ap-3,
                0x1.c71c521450a34p-3, 0x1.24924941e1560p-2, 0x1.999999997ff19p-2,
                0x1.5555555555592p-1);
}

template <class T>
T log(T x) {
  using F = ExpFormat<T>;
  using Bits = typename F::Bits;
  constexpr T infinity = std::numeric_limits<T>::infinity(),
              root = static_cast<T>(1 / std::numbers::sqrt2);
  constexpr Bits one = std::bit_cast<Bits>(T{1}), least = std::bit_cast<Bits>(root),
                 fraction = (Bits{1} << F::fraction_bits) - 1;
  const bool subnormal = x < std::numeric_limits<T>::min();
  const T scaled = subnormal ? x * static_cast<T>(Bits{1} << F::fraction_bits) : x;
  // x = 2^n (1 + f) with 1 + f as above; n is converted as in exp_parts().
  const Bits bits = std::bit_cast<Bits>(scaled) + (one - least);
  const T shifted = std::bit_cast<T>(std::bit_cast<Bits>(F::round) + (bits >> F::fraction_bits));
  const T n = shifted - (F::round + static_cast<T>(one >> F::fraction_bits)) -
              (subnormal ? static_cast<T>(F::fraction_bits) : T{0});
  const T f = std::bit_cast<T>((bits & fraction) + least) - 1, s = f / (2 + f), z = s * s;
  // log(1 + f) = f - (h - s (h + z Q(z))): f is exact, and the rest is small.
  const T h = f * f / 2, rest = std::fma(s, std::fma(z, log_tail(z), h), n * F::ln2_low) - h;
  const T y = std::fma(n, F::ln2_high, rest + f);
  const T positive = x < infinity ? y : x;
  const T not_above = x == 0 ? -infinity : std::numeric_limits<T>::quiet_NaN();
  return x > 0 ? positive : not_above;
}

// tanh |x| = t / (t + 2), t = e^{2|x|} - 1 = 2^n m + (2^n - 1): no cancellation, even near 0.
template <class T>
T tanh(T x, T saturated) {
  using F = ExpFormat<T>;
  const T a = std::abs(x);
  const ExpParts<T> parts = exp_parts(2 * (a > saturated ? saturated : a));
  const T power = std::bit_cast<T>(std::bit_cast<typename F::Bits>(T{1}) + parts.exponent);
  const T t = std::fma(power, parts.m, power - 1);
  return std::copysign(t / (t + 2), x);
}

}  // namespace detail

inline float exp(float x) { return detail::exp(x); }
inline double exp(double x) { return detail::exp(x); }
inline float log(float x) { return detail::log(x); }
inline double log(double x) { return detail::log(x); }

// tanh rounds to 1 beyond the second argument.
inline float tanh(float x) { return detail::tanh(x, 9.25f); }
inline double tanh(double x) { return detail::tanh(x, 19.5); }

namespace detail {

// pi/2 as a sum of three T: fma(n, -a, x) is exact where x cancels, and b and c correct it.
template <class T>
struct HalfPi;
template <>
struct HalfPi<float> {
  static constexpr float a = 0x1.921fb6p+0f, b = -0x1.777a5cp-25f, c = -0x1.ee59dap-50f;
};
template <>
struct HalfPi<double> {
  static constexpr double a = 0x1.921fb54442d18p+0, b = 0x1.1a62633145c07p-54,
                          c = -0x1.f1976b7ed8fbcp-110;
};

// (-1)^i / (2i + odd)!
constexpr double taylor(int odd, int i) {
  double factorial = i % 2 ? -1 : 1;
  for (int n = 2; n <= 2 * i + odd; ++n) factorial *= n;
  return 1 / factorial;
}

// cos(r) for odd = 0, sin(r) / r for odd = 1, at s = r². Recursive, since a loop here would prevent
// the loop over elements from being vectorised (13 instead of 1.1 ns per f32 element).
template <int odd, class T, int i = 0>
T series(T s) {
  constexpr int last = sizeof(T) == 4 ? 5 : 8;
  constexpr T coefficient = static_cast<T>(taylor(odd, i));
  if constexpr (i == last)
    return coefficient;
  else
    return std::fma(series<odd, T, i + 1>(s), s, coefficient);
}

// x = n pi/2 + r with |r| <= pi/4.
template <class T>
CosSin<T> cos_sin(T x) {
  using P = HalfPi<T>;
  using Bits = typename ExpFormat<T>::Bits;
  constexpr T round = ExpFormat<T>::round;  // adding and subtracting it rounds to an integer
  const T shifted = std::fma(x, static_cast<T>(0x1.45f306dc9c883p-1), round);
  const T n = shifted - round;
  T r = std::fma(n, -P::a, x);
  r = std::fma(n, -P::b, r);
  r = std::fma(n, -P::c, r);
  const T s = r * r, c = series<0>(s), d = r * series<1>(s);
  // cos(r + q pi/2) is c, -d, -c, d for q = 0, 1, 2, 3, q = n modulo 4 (the low bits); for the sine
  // q = n - 1.
  const auto shifted_cos = [=](Bits q) {
    const T y = q & 1 ? d : c;
    const T z = (q + 1) & 2 ? -y : y;
    return z > 1 ? T{1} : z < -1 ? T{-1} : z;
  };
  const auto q = std::bit_cast<Bits>(shifted);
  return {shifted_cos(q), shifted_cos(q - 1)};
}

}  // namespace detail

inline CosSin<float> cos_sin(float x) { return detail::cos_sin(x); }
inline CosSin<double> cos_sin(double x) { return detail::cos_sin(x); }

inline float erf(float x) {
  const float a = std::abs(x);
  const float b = a > 3.95f ? 3.95f : a;  // beyond, erf rounds to 1
  // |x| < 1: erf x = x + x q(x²), with a relative error of 2^-29.
  const float q = detail::horner(b * b, 7.80706294e-05f, -0.000799788802f, 0.00518716453f,
                                 -0.0268533472f, 0.112835787f, -0.376126260f, 0.128379166f);
  // Otherwise erf |x| = 1 - p(|x| - 2.5)^4: the fourth root of erfc is nearly straight, so a low
  // degree suffices. The absolute error is 2^-26.
  const float p =
      detail::horner(b - 2.5f, -2.21821052e-05f, -0.000266999152f, -6.38213444e-06f, 0.00275938841f,
                     -0.00639775628f, -0.0122630363f, 0.0936312005f, -0.190067768f, 0.142031938f);
  const float p2 = p * p;
  const float y = b < 1 ? std::fma(b, q, b) : std::fma(-p2, p2, 1.0f);
  return std::copysign(y, x);
}

inline double erf(double x) { return std::erf(x); }

namespace detail {

// e^(-x²/2). Rounding x² would cause an error of x² 2^-24 of the result, which is corrected.
template <class T>
T bell(T x) {
  const T square = x * x, rest = std::fma(x, x, -square);
  const T e = exp(square / -2);
  return std::fma(rest / -2, e, e);
}

}  // namespace detail

inline Normal<float> normal(float x) {
  const float a = std::abs(x), b = a > 14 ? 14.0f : a;  // beyond it, the tail is 0
  const float bell = detail::bell(b);
  // Phi(-b) = e^(-b²/2) g(b), and g, half the scaled complementary error function, is smooth: a
  // polynomial in u = 1 / (1 + 11/32 b) for b <= 13.3, with a relative error of 2^-23.
  const float u = 1 / std::fma(0.34375f, b, 1.0f);
  const float g =
      u * detail::horner(u, -0.0281491838f, 0.145410955f, -0.274751991f, 0.194178164f,
                         -0.0414059274f, 0.113487631f, 0.116544545f, 0.137567475f, 0.137118325f);
  const float tail = bell * g;
  return {x < 0 ? tail : 1 - tail, bell * 0.398942280f};
}

inline Normal<double> normal(double x) {
  constexpr double inverse_sqrt_two_pi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const double a = std::abs(x), b = a > 40 ? 40.0 : a;
  return {std::erfc(x / -std::numbers::sqrt2) / 2, detail::bell(b) * inverse_sqrt_two_pi};
}

}  // namespace longhand::math
