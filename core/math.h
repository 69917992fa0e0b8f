// Branch-free exp, log, tanh, cos and sin, erf and normal that the compiler vectorises inside
// simd(). Every rounding is explicit (fma, no contraction): all instruction sets give bitwise
// identical results. The baseline set has no fma instruction and is slower by a factor of 20 or
// more. Errors are the largest measured: over all numbers in f32, over some millions in f64.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace longhand::math {

/// e^x, within 1.02 ulp (f32) and 1.01 ulp (f64); exactly 1 for 0; exactly 0 if the result would be
/// below the smallest normal number, as for -infinity; infinity above the largest; NaN for NaN.
float exp(float x);
double exp(double x);
/// log x, within 0.9 ulp (f32 and f64), of subnormal numbers too; -infinity for 0, infinity for
/// infinity, NaN below 0 and for NaN.
float log(float x);
double log(double x);
/// tanh x, within 2.63 ulp (f32) and 2.6 ulp (f64). Odd, and -0 for -0; exactly 1 for large x.
float tanh(float x);
double tanh(double x);
/// cos x and sin x.
template <class T>
struct CosSin {
  T cos, sin;
};
/// Both with an absolute error of at most 1.2e-7 (f32) and 3e-16 (f64) for |x| < 2^22. For larger
/// |x|, whose phase a float hardly resolves, they are only certain to be in [-1, 1]. NaN for NaN.
CosSin<float> cos_sin(float x);
CosSin<double> cos_sin(double x);

/// The error function, within 1.74 ulp (f32). Odd, and -0 for -0; exactly 1 for large x. In f64 it
/// is the C library's, which no compiler vectorises.
float erf(float x);
double erf(double x);

/// The standard normal distribution at x: Phi(x) = erfc(-x / sqrt 2) / 2 and its density
/// e^(-x²/2) / sqrt(2 pi).
template <class T>
struct Normal {
  T cdf, density;
};
/// Both with a relative error of at most 4e-7 (f32; subnormal results excepted) and 1e-12 (f64), in
/// the negative tail too, where 1 + erf would cancel. NaN for NaN. The cdf of f64 is the C
/// library's erfc, which no compiler vectorises.
Normal<float> normal(float x);
Normal<double> normal(double x);

}  // namespace longhand::math

#include "longhand/core/math-inl.h"
