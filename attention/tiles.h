// What attention in tiles shares: blocks of tokens that stay in the caches, tokens across, so that
// the lanes of a vector are tokens.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/math.h"
#include "longhand/core/simd.h"
#include "longhand/core/storage.h"
#include "longhand/core/tensor.h"

namespace longhand::attention::tiles {

/// Rows of a tile are a multiple of so many tokens long.
inline constexpr int64_t lane_multiple = 16;
inline int64_t whole_lanes(int64_t tokens) {
  return (tokens + lane_multiple - 1) / lane_multiple * lane_multiple;
}

/// Calls f(i) for each of the lanes, which do not meet; for use inside simd(). Whole vectors: no
/// loop for the rest of them, and no look whether what f writes is what it reads.
template <class F>
void for_lanes(int64_t lanes, F f) {
  for (int64_t first = 0; first < lanes; first += lane_multiple)
#pragma GCC ivdep
    for (int64_t i = first; i < first + lane_multiple; ++i) f(i);
}

/// What e^x and log x are for T: f32 works with powers of 2, `log_e` = log2 e is multiplied into
/// exponents beforehand.
template <class T>
struct Base;
template <>
struct Base<double> {
  static constexpr double log_e = 1;
  static double power(double x) { return math::exp(x); }
  static double log(double x) { return std::log(x); }
};
template <>
struct Base<float> {
  static constexpr double log_e = std::numbers::log2e;
  // 2^x for x <= 1, within 2.2e-7 of it; exactly 1 for 0; 0 below the normal numbers; NaN for NaN.
  static float power(float x) {
    const float shifted =
        x + 0x1.8p23f;  // rounds x to an integer, in the low bits (see math-inl.h)
    const float f = x - (shifted - 0x1.8p23f);
    const float y = math::detail::horner(f, 0.00132764727f, 0.00967554133f, 0.0555071327f,
                                         0.240221197f, 0.693146967f, 1.0f);
    const float z =
        std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(shifted) << 23));
    return x < -126 ? 0 : z;
  }
  static float log(float x) { return std::log2(x); }
};

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

/// (B, N, H, D), whose rows of D are contiguous.
template <class T>
struct Heads {
  T* data;
  int64_t batch, token, head;

  explicit Heads(Tensor& t)
      : data(t.data<T>()), batch(t.strides()[0]), token(t.strides()[1]), head(t.strides()[2]) {}
  explicit Heads(const Tensor& t)
      : data(t.data<std::remove_const_t<T>>()),
        batch(t.strides()[0]),
        token(t.strides()[1]),
        head(t.strides()[2]) {}
  T* at(int64_t b, int64_t n, int64_t h) const { return data + b * batch + n * token + h * head; }
};

/// Memory for one task. Throws Error where more is taken than there is.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes), next_(memory_.data()) {}
  template <class U>
  U* take(int64_t n) {
    U* const p = reinterpret_cast<U*>(next_);
    const size_t size = static_cast<size_t>(n) * sizeof(U), end = next_ - memory_.data() + size;
    check(end <= memory_.bytes(), "scratch: ", end, " bytes are wanted of ", memory_.bytes());
    next_ += (size + 63) / 64 * 64;
    return p;
  }

 private:
  Storage memory_;
  std::byte* next_;
};

/// to[d lanes + i] = factor from[i token + d], zeros for the lanes from count on.
template <class T>
void pack_transposed(const T* from, int64_t token, int64_t count, int64_t lanes, int64_t D,
                     T factor, T* to) {
  kernels::transpose_into(count, D, from, token, factor, to, lanes, false);
  if (count < lanes)
    for (int64_t d = 0; d < D; ++d) std::fill(to + d * lanes + count, to + (d + 1) * lanes, T{0});
}

/// (B, N, H, D) with contiguous rows of D; those of the gradient then are contiguous too.
inline Variable with_contiguous_rows(const Variable& x) {
  if (x.size(3) == 1 || x.value().strides()[3] == 1) return x;
  return reshape(reshape(x, {x.value().numel()}), x.shape());  // flattening copies
}

/// Lengths (B) i32 of at most n, or n for all where they are undefined. Throws ShapeError, saying
/// `what` they are.
inline std::vector<int32_t> lengths_or(const char* what, const Tensor& lengths, int64_t B,
                                       int64_t n) {
  if (!lengths.defined()) return std::vector<int32_t>(B, static_cast<int32_t>(n));
  check<ShapeError>(lengths.dtype() == DType::i32 && lengths.shape() == Shape{B}, what,
                    " must be i32 of shape ", Shape{B}, ", not ", lengths.dtype(), " of shape ",
                    lengths.shape());
  auto values = lengths.to_vector<int32_t>();
  for (const int32_t length : values)
    check<ShapeError>(0 <= length && length <= n, what, " holds ", length, ", not within 0 and ",
                      n);
  return values;
}

/// Where a gradient goes: to = beta to + g, with beta 0 or 1.
struct Gradient {
  Tensor to;  // undefined: not wanted
  double beta = 0;
};

/// Those of queries, keys and values.
inline std::array<Gradient, 3> gradients_of(std::span<GradSlot> slots) {
  std::array<Gradient, 3> all;
  for (size_t i = 0; i < all.size(); ++i)
    if (slots[i]) {
      const GradSlot::Accumulator to = slots[i].accumulate();
      all[i] = {to.grad, to.beta};
    }
  return all;
}

}  // namespace longhand::attention::tiles
