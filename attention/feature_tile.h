// Features of queries and keys, computed where they are needed: in the caches, never written.
#pragma once

#include <algorithm>

#include "longhand/attention/tiles.h"
#include "longhand/core/kernels/rows.h"

namespace longhand::attention::tiles {

/// Tokens of a tile: a multiple of 16 lanes and of 6 (12) rows.
inline constexpr int64_t block = 48;

/// What the m features of an x of D numbers are.
struct FeatureRule {
  int64_t D, m;
  bool exponentials;
  Tensor projection;  // contiguous, or undefined
  double half_norm;
};

/// Throws ShapeError, naming `op`, where a projection does not fit x (B, N, H, D).
inline FeatureRule feature_rule(const char* op, const Variable& x, bool exponentials,
                                const Tensor& W, double half_norm) {
  check<ShapeError>(
      !W.defined() || ((W.rank() == 2 || (W.rank() == 3 && W.size(0) == x.size(2))) &&
                       W.size(-1) == x.size(3) && W.dtype() == x.dtype() && exponentials),
      op, ": a projection (m, D) or (H, m, D) for exponentials of q ", x.shape(), " of ", x.dtype(),
      " is wanted, not ", W.defined() ? W.shape() : Shape{});
  return {x.size(3), W.defined() ? W.size(-2) : x.size(3), exponentials,
          W.defined() ? W.contiguous() : W, half_norm};
}

/// sums_l += Σ_i x_li weight_i for x (n, lanes), or Σ_i x_li; for use inside simd(). Eight rows at
/// once, each in the order of join_lanes.
template <class T>
void add_sums_of_lanes(const T* x, const T* weight, int64_t n, int64_t lanes, T* sums) {
  constexpr int64_t rows = 8;
  for (int64_t l = 0; l < n; l += rows) {
    const int64_t real = std::min(rows, n - l);
    T sixteen[rows * 16] = {}, eight[rows * 8], four[rows * 4], two[rows * 2];
    static_assert(lane_multiple == 16);
    for (int64_t r = 0; r < real; ++r)
      for (int64_t first = 0; first < lanes; first += 16)
        for (int64_t i = 0; i < 16; ++i) {
          const T y = x[(l + r) * lanes + first + i];
          sixteen[r * 16 + i] += weight ? y * weight[first + i] : y;
        }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < 8; ++i)
        eight[r * 8 + i] = sixteen[r * 16 + i] + sixteen[r * 16 + 8 + i];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < 4; ++i) four[r * 4 + i] = eight[r * 8 + i] + eight[r * 8 + 4 + i];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < 2; ++i) two[r * 2 + i] = four[r * 4 + i] + four[r * 4 + 2 + i];
    for (int64_t r = 0; r < real; ++r) sums[l + r] += two[r * 2] + two[r * 2 + 1];
  }
}

/// The features of a block of tokens of one head, (m, lanes).
template <class T>
class FeatureTile {
 public:
  FeatureTile(const FeatureRule& rule, Scratch& scratch)
      : rule_(rule),
        x_(scratch.take<T>(rule.D * block)),
        f_(scratch.take<T>(rule.m * block)),
        shift_(scratch.take<T>(block)) {}
  static int64_t elements(const FeatureRule& rule) { return (rule.D + rule.m + 1) * block; }

  int64_t count() const { return count_; }
  int64_t lanes() const { return lanes_; }
  T* features() { return f_; }

  /// t of keys, or s of queries, times log_e if they are exponents. Lanes beyond `count` have
  /// features of 0: exponents of 0 and a shift of -inf.
  void start(const Heads<const T>& x, int64_t b, int64_t h, int64_t first, int64_t count,
             bool keys) {
    const FeatureRule& z = rule_;
    h_ = h, count_ = count, lanes_ = whole_lanes(count);
    const T factor = rule_.exponentials ? static_cast<T>(Base<T>::log_e) : T{1};
    T* const to = rule_.projection ? x_ : f_;
    pack_transposed(x.at(b, first, h), x.token, count, lanes_, z.D, factor, to);
    for (int64_t i = 0; i < lanes_; ++i) shift_[i] = i < count ? T{0} : -infinity<T>;
    if (!rule_.projection) return;
    kernels::gemm_tile<T>(z.m, lanes_, z.D, {W(), z.D, 1}, x_, lanes_, f_, lanes_, false);
    if (!keys || rule_.half_norm == 0) return;
    // x holds log_e k.
    const T a = static_cast<T>(rule_.half_norm / Base<T>::log_e);
    simd([this, a, D = z.D] {
      for (int64_t d = 0; d < D; ++d)
        for (int64_t i = 0; i < lanes_; ++i)
          shift_[i] -= a * x_[d * lanes_ + i] * x_[d * lanes_ + i];
    });
  }

  /// Raises c to the maxima of exponents so far, and puts into `shrink` by what that multiplies
  /// sums.
  void raise(T* c, T* shrink) const {
    simd([=, this, m = rule_.m] {
      for (int64_t l = 0; l < m; ++l) {
        const T* const t = f_ + l * lanes_;
        T top[lane_multiple];
        std::fill(top, top + lane_multiple, c[l]);
        for (int64_t first = 0; first < lanes_; first += lane_multiple)
          for (int64_t i = 0; i < lane_multiple; ++i) {
            const T x = t[first + i] + shift_[first + i];
            top[i] = top[i] < x ? x : top[i];
          }
        for (int64_t half = lane_multiple / 2; half > 0; half /= 2)
          for (int64_t i = 0; i < half; ++i)
            top[i] = top[i] < top[i + half] ? top[i + half] : top[i];
        shrink[l] = c[l] == top[0] ? T{1} : Base<T>::power(c[l] - top[0]);
        c[l] = top[0];
      }
    });
  }

  /// From exponents of keys to e^(t - c).
  void exponentiate_keys(const T* c) {
    simd([=, this, m = rule_.m] {
      for (int64_t l = 0; l < m; ++l)
        for (int64_t i = 0; i < lanes_; ++i) {
          T& f = f_[l * lanes_ + i];
          f = Base<T>::power(f + shift_[i] - c[l]);
        }
    });
  }

  /// From exponents of queries to e^(s + c - max).
  void exponentiate_queries(const T* c) {
    simd([=, this, m = rule_.m] {
      T top[block];
      std::fill(top, top + lanes_, -infinity<T>);
      for (int64_t l = 0; l < m; ++l)
        for (int64_t i = 0; i < lanes_; ++i) {
          const T s = f_[l * lanes_ + i] + c[l];
          top[i] = top[i] < s ? s : top[i];
        }
      for (int64_t l = 0; l < m; ++l)
        for (int64_t i = 0; i < lanes_; ++i) {
          T& f = f_[l * lanes_ + i];
          f = Base<T>::power(f + c[l] - top[i]);
        }
    });
  }

  /// The largest exponent of each token; finite beyond `count`.
  void largest(T* top) const {
    simd([=, this, m = rule_.m] {
      std::fill(top, top + lanes_, -infinity<T>);
      for (int64_t l = 0; l < m; ++l)
        for (int64_t i = 0; i < lanes_; ++i) {
          const T t = f_[l * lanes_ + i] + shift_[i];
          top[i] = top[i] < t ? t : top[i];
        }
      std::fill(top + count_, top + lanes_, T{0});
    });
  }

  /// From exponents to e^(t - c), c of each lane.
  void exponentiate(const T* c) {
    simd([=, this, m = rule_.m] {
      for (int64_t l = 0; l < m; ++l)
        for (int64_t i = 0; i < lanes_; ++i) {
          T& f = f_[l * lanes_ + i];
          f = Base<T>::power(f + shift_[i] - c[i]);
        }
    });
  }

  /// From the gradient of the features, (m, lanes), to that of x: added to it, or written.
  void input_gradient(T* df, const Heads<const T>& x, const Heads<T>& dx, int64_t b, int64_t first,
                      bool keys, bool add) {
    const FeatureRule& z = rule_;
    if (rule_.exponentials)
      simd([=, this, m = z.m] {
        for (int64_t i = 0; i < m * lanes_; ++i) df[i] *= f_[i];
      });
    T* const to = dx.at(b, first, h_);
    if (!rule_.projection) {
      simd([=, this] {
        for (int64_t i = 0; i < count_; ++i)
          for (int64_t d = 0; d < z.D; ++d) {
            T& g = to[i * dx.token + d];
            g = add ? g + df[d * lanes_ + i] : df[d * lanes_ + i];
          }
      });
      return;
    }
    kernels::gemm_tile<T>(count_, z.D, z.m, {df, 1, lanes_}, W(), z.D, to, dx.token, add);
    if (!keys || rule_.half_norm == 0) return;
    const T* const from = x.at(b, first, h_);
    simd([=, this] {
      T sum[block] = {};
      for (int64_t l = 0; l < z.m; ++l)
        for (int64_t i = 0; i < lanes_; ++i) sum[i] += df[l * lanes_ + i];
      for (int64_t i = 0; i < count_; ++i) {
        const T a = static_cast<T>(2 * rule_.half_norm) * sum[i];
        for (int64_t d = 0; d < z.D; ++d) to[i * dx.token + d] -= a * from[i * x.token + d];
      }
    });
  }

 private:
  const T* W() const {
    const Tensor& W = rule_.projection;
    return W.data<T>() + (W.rank() == 3 ? h_ * W.size(1) * W.size(2) : 0);
  }

  const FeatureRule& rule_;
  T *const x_, *const f_, *const shift_;
  int64_t h_ = 0, count_ = 0, lanes_ = 0;
};

}  // namespace longhand::attention::tiles
