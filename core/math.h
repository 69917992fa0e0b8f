// Branch-free exp, tanh and erf that the compiler vectorises inside simd(). Every rounding is
// spelled out (fma, no contraction), so all instruction sets give the same bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace longhand::math {

/// e^x. Relative error below 1.5 ulp (f32) and 2 ulp (f64); 0 below the smallest normal number,
/// infinity above the largest, NaN for NaN.
float exp(float x);
double exp(double x);
/// tanh x, within 3 ulp (f32) and 4 ulp (f64).
float tanh(float x);
double tanh(double x);
/// The error function, within 4 ulp (f32) and 1e-15 absolute (f64).
float erf(float x);
double erf(double x);

}  // namespace longhand::math

#include "longhand/core/math-inl.h"
