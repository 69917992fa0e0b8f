// Features of queries and keys, computed tile by tile in cache.
#pragma once

#include <algorithm>
#include <cstring>

#include "longhand/attention/ops/tile/feature_rule.h"
#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"

namespace longhand::attention::tile {

/// Tokens per tile: a multiple of 16 lanes and of 6 (12) rows. Scans have their own tile sizes.
inline constexpr int64_t block = 64;

/// Calls take(l, y_l) with y_l = value(l, 0) ∘ value(l, 1) ∘ ... over the lanes of each of n rows,
/// where ∘ is `join` of vectors, in the same fixed order for each row. For use inside simd().
template <class T, class Value, class Joined, class Take>
void join_rows_of_lanes(int64_t n, int64_t lanes, T start, Value value, Joined join, Take take) {
  constexpr int64_t rows = kernels::rows_together;
  static_assert(lane_multiple == kernels::lanes);
  for (int64_t l = 0; l < n; l += rows) {
    const int64_t real = std::min(rows, n - l);
    kernels::Eight<T> joined[rows] = {};
    for (int64_t r = 0; r < real; ++r) {
      const auto [low, high] = kernels::join_lanes(
          int64_t{0}, lanes, start, [&](int64_t i) { return value(l + r, i); }, join);
      joined[r] = join(low, high);
    }
    T of_rows[rows];
    kernels::join_rows<T>(joined, join, of_rows);
    for (int64_t r = 0; r < real; ++r) take(l + r, of_rows[r]);
  }
}

/// top_i = max(top_i, max_l value(l, i)) over n rows l for `width` lanes i from `first` on, inside
/// simd(). Keeps eight vectors of maxima, of different lanes or rows, to hide latency.
template <int64_t width, class T, class Value>
void raise_stretch(int64_t n, int64_t first, T* top, Value value) {
  constexpr int64_t vectors = width / 8, chains = 8 / vectors;
  kernels::Eight<T> most[8];
  const auto at = [=](int64_t c) { return first + c % vectors * 8; };
  const auto raise = [](kernels::Eight<T>& to, kernels::Eight<T> x) { to = to < x ? x : to; };
  for (int64_t c = 0; c < 8; ++c)
    most[c] = kernels::eight_of<T>(at(c), [=](int64_t i) { return top[i]; });
  for (int64_t l = 0; l < n; l += chains)
    for (int64_t c = 0; c < 8; ++c) {
      const int64_t row = std::min(l + c / vectors, n - 1);
      raise(most[c], kernels::eight_of<T>(at(c), [=](int64_t i) { return value(row, i); }));
    }
  for (int64_t c = vectors; c < 8; ++c) raise(most[c % vectors], most[c]);
  for (int64_t c = 0; c < vectors; ++c) std::memcpy(top + at(c), &most[c], sizeof most[c]);
}

/// The same for all lanes, in row stretches as long as possible, which occupy consecutive cache
/// lines.
template <class T, class Value>
void raise_lanes(int64_t n, int64_t lanes, T* top, Value value) {
  constexpr int64_t most = 4 * lane_multiple;
  int64_t first = 0;
  for (; first + most <= lanes; first += most) raise_stretch<most>(n, first, top, value);
  for (; first < lanes; first += lane_multiple) raise_stretch<lane_multiple>(n, first, top, value);
}

/// sums_l += Σ_i x_li weight_i for x (n, lanes), or Σ_i x_li. For use inside simd().
template <class T>
void add_sums_of_lanes(const T* x, const T* weight, int64_t n, int64_t lanes, T* sums) {
  join_rows_of_lanes(
      n, lanes, T{0},
      [=](int64_t l, int64_t i) {
        const T y = x[l * lanes + i];
        return weight ? y * weight[i] : y;
      },
      kernels::plus, [=](int64_t l, T sum) { sums[l] += sum; });
}

/// The features of a block of tokens of one head, (features, lanes): all m, or one block of
/// features at a time, so that they stay in the L1 cache.
template <class T>
class FeatureTile {
 public:
  FeatureTile(const FeatureRule& rule, int64_t features, Scratch& scratch, int64_t tokens = block)
      : rule_(rule),
        x_(scratch.take<T>(rule.D * tokens)),
        own_(scratch.take<T>((rule.phases ? 2 : 1) * features * tokens)),
        shift_(scratch.take<T>(tokens)),
        gradients_(scratch.take<T>(tokens)) {}

  int64_t count() const { return count_; }
  int64_t lanes() const { return lanes_; }
  T* features() { return f_; }

  /// Sets the tokens, keys or queries; `norms`: subtract half_norm |x|². Lanes beyond `count` have
  /// features of 0, or projections of 0 with a shift of -inf. `memory`: where to store the
  /// features, if not in the tile; `done`: all of them have already been computed there.
  void start(const Heads<const T>& x, int64_t b, int64_t h, int64_t first, int64_t count,
             bool norms, T* memory = nullptr, bool done = false) {
    const FeatureRule& z = rule_;
    h_ = h, count_ = count, lanes_ = whole_lanes(count), from_ = x.at(b, first, h),
    token_ = x.token;
    halved_ = norms && z.projection && z.half_norm != 0;
    f_ = memory ? memory : own_;
    for (int64_t i = 0; i < lanes_; ++i) shift_[i] = i < count ? T{0} : -infinity<T>;
    if (!z.projection) return;
    std::fill_n(gradients_, lanes_, T{0});
    if (done) return select(0, z.m);
    pack_transposed(from_, token_, count, z.D, factor(), x_);
    if (!halved_) return;
    // x holds factor() k, and the shift is an exponent of Base.
    const T a = static_cast<T>(z.half_norm * Base<T>::log_e) / (factor() * factor());
    simd([this, a, D = z.D] {
      for (int64_t d = 0; d < D; ++d)
        for_lanes(lanes_, [=, shift = shift_, x = x_ + d * lanes_](int64_t i) {
          shift[i] -= a * x[i] * x[i];
        });
    });
  }

  /// Computes features [l, l + n): t of keys, or s of queries, times log_e if they are exponents;
  /// waves of keys without their factor.
  void compute(int64_t l, int64_t n) {
    const FeatureRule& z = rule_;
    select(l, n);
    if (z.projection)
      kernels::gemm_tile<T>(rows_, lanes_, z.D, {W(), z.D, 1}, x_, lanes_, f_, lanes_, false);
    else
      pack_transposed(from_ + l, token_, count_, n, factor(), f_);
    if (z.waves) compute_waves();
  }

  /// Updates c, the maxima of exponents so far, and sets `shrink` to the factors that rescale sums
  /// accordingly. Waves have one exponent per key, that of their common factor.
  void raise(T* c, T* shrink) const {
    const auto keep = [=](int64_t l, T top) {
      top = c[l] < top ? top : c[l];
      shrink[l] = c[l] == top ? T{1} : Base<T>::power(c[l] - top);
      c[l] = top;
    };
    if (rule_.waves) {
      const T top = *std::max_element(shift_, shift_ + lanes_);
      for (int64_t l = 0; l < n_; ++l) keep(l, top);
      return;
    }
    simd([=, n = n_, lanes = lanes_, f = f_, shift = shift_] {
      join_rows_of_lanes(
          n, lanes, -infinity<T>, [=](int64_t l, int64_t i) { return f[l * lanes + i] + shift[i]; },
          [](auto a, auto b) { return a < b ? b : a; }, keep);
    });
  }

  /// Makes features of keys relative to c: exponents become e^(t - c), waves are multiplied by
  /// e^(-half_norm |k|² - c).
  void scale_keys(const T* c) {
    if (!rule_.waves)
      return each([=, shift = shift_](int64_t l, int64_t i, T t) {
        return Base<T>::power(t + shift[i] - c[l]);
      });
    simd([=, rows = 2 * rows_, lanes = lanes_, f = f_, shift = shift_] {
      T factors[block];
      for_lanes(lanes, [&, shift](int64_t i) { factors[i] = Base<T>::power(shift[i] - c[0]); });
      for (int64_t l = 0; l < rows; ++l)
        for_lanes(lanes, [&, row = f + l * lanes](int64_t i) { row[i] *= factors[i]; });
    });
  }

  /// Updates `top`, the maximum of s + c so far for each token, and sets `shrink` to the factors
  /// that rescale sums accordingly.
  void raise_queries(const T* c, T* top, T* shrink) const {
    simd([=, n = n_, lanes = lanes_, f = f_] {
      T most[block] = {};  // GCC 14 otherwise assumes uninitialised lanes
      std::copy_n(top, lanes, most);
      raise_lanes(n, lanes, most, [=](int64_t l, int64_t i) { return f[l * lanes + i] + c[l]; });
      for_lanes(lanes, [=, most = most](int64_t i) {
        shrink[i] = top[i] == most[i] ? T{1} : Base<T>::power(top[i] - most[i]);
        top[i] = most[i];
      });
    });
  }

  /// Replaces exponents of queries by e^(s + c - top).
  void exponentiate_queries(const T* c, const T* top) {
    each([=](int64_t l, int64_t i, T s) { return Base<T>::power(s + c[l] - top[i]); });
  }

  /// Sets `top` to the largest exponent of each token; finite in lanes beyond `count`.
  void largest(T* top) const {
    simd([=, n = n_, count = count_, lanes = lanes_, f = f_, shift = shift_] {
      std::fill(top, top + lanes, -infinity<T>);
      raise_lanes(n, lanes, top, [=](int64_t l, int64_t i) { return f[l * lanes + i] + shift[i]; });
      std::fill(top + count, top + lanes, T{0});
    });
  }

  /// Replaces exponents by e^(t - c), with one c per lane.
  void exponentiate(const T* c) {
    each([=, shift = shift_](int64_t, int64_t i, T t) {
      return Base<T>::power(t + shift[i] - c[i]);
    });
  }

  /// df_li += of_feature_l of_token_i, which completes df, the gradient of the current features.
  /// With exponentials, df is then multiplied by the features to give the gradient of their
  /// exponents. With waves it becomes the gradient of the projections, in the first rows.
  void finish_gradient(T* df, const T* of_feature, const T* of_token) {
    const FeatureRule& z = rule_;
    if (z.waves) return finish_waves(df, of_feature, of_token);
    simd([=, n = n_, lanes = lanes_, exponentials = z.exponentials, halved = halved_, features = f_,
          gradients = gradients_] {
      for (int64_t l = 0; l < n; ++l) {
        const auto with = [=, a = of_feature[l], row = df + l * lanes,
                           f = features + l * lanes](auto write) {
          for_lanes(lanes, [=](int64_t i) { write(i, row[i], row[i] + a * of_token[i], f[i]); });
        };
        if (!exponentials)
          with([](int64_t, T& to, T g, T) { to = g; });
        else if (!halved)
          with([](int64_t, T& to, T g, T f) { to = g * f; });
        else
          with([=](int64_t i, T& to, T g, T f) {
            to = g * f;
            gradients[i] += to;
          });
      }
    });
  }

  /// Computes the gradient of x from a completed df: adds to it or overwrites it. Must be called
  /// for all blocks of features, in order.
  void input_gradient(T* df, const Heads<T>& dx, int64_t b, int64_t first, bool add) {
    const FeatureRule& z = rule_;
    T* const to = dx.at(b, first, h_);
    if (!z.projection)
      return kernels::transpose_into(n_, count_, df, lanes_, T{1}, to + l_, dx.token, add);
    kernels::gemm_tile<T>(count_, z.D, rows_, {df, 1, lanes_}, W(), z.D, to, dx.token,
                          add || l_ > 0);
    if (halved_ && l_ + n_ == z.m)
      simd([=, this, a = static_cast<T>(2 * z.half_norm)] {
        for (int64_t i = 0; i < count_; ++i)
          for (int64_t d = 0; d < z.D; ++d)
            to[i * dx.token + d] -= a * gradients_[i] * from_[i * token_ + d];
      });
  }

 private:
  void select(int64_t l, int64_t n) { l_ = l, n_ = n, rows_ = rule_.pairs() ? n / 2 : n; }
  // Replaces projections t by cos t, and the rows after them by sin t.
  void compute_waves() {
    const T* const b = rule_.phases ? rule_.phases.template data<T>() + first_row() : nullptr;
    simd([=, rows = rows_, lanes = lanes_, f = f_] {
      for (int64_t l = 0; l < rows; ++l)
        for_lanes(lanes, [phase = b ? b[l] : T{0}, cosine = f + l * lanes,
                          sine = f + (rows + l) * lanes](int64_t i) {
          const auto [c, s] = math::cos_sin(cosine[i] + phase);
          cosine[i] = c;
          sine[i] = s;
        });
    });
  }

  // finish_gradient() of waves: dt = cos(t) dsin - sin(t) dcos, where both include their factor.
  void finish_waves(T* df, const T* of_feature, const T* of_token) {
    simd([=, rows = rows_, lanes = lanes_, pairs = rule_.pairs(), f = f_, gradients = gradients_] {
      for (int64_t l = 0; l < rows; ++l) {
        const T *const c = f + l * lanes, *const s = f + (rows + l) * lanes;
        T *const dc = df + l * lanes, *const ds = df + (rows + l) * lanes;
        const T a = of_feature[l];
        if (pairs)
          for_lanes(lanes, [=, b = of_feature[rows + l]](int64_t i) {
            const T g = dc[i] + a * of_token[i], h = ds[i] + b * of_token[i];
            dc[i] = c[i] * h - s[i] * g;
            gradients[i] += g * c[i] + h * s[i];
          });
        else
          for_lanes(lanes, [=](int64_t i) {
            const T g = dc[i] + a * of_token[i];
            dc[i] = -s[i] * g;
            gradients[i] += g * c[i];
          });
      }
    });
  }

  // f_li <- f(l, i, f_li)
  template <class F>
  void each(F f) {
    simd([=, n = n_, lanes = lanes_, all = f_] {
      for (int64_t l = 0; l < n; ++l)
        for_lanes(lanes, [=, row = all + l * lanes](int64_t i) { row[i] = f(l, i, row[i]); });
    });
  }

  T factor() const { return rule_.exponentials ? static_cast<T>(Base<T>::log_e) : T{1}; }
  // The first current feature among the rows of the projections of all heads.
  int64_t first_row() const {
    const Tensor& W = rule_.projection;
    return (W.rank() == 3 ? h_ * W.size(1) : 0) + (rule_.pairs() ? l_ / 2 : l_);
  }
  const T* W() const { return rule_.projection.data<T>() + first_row() * rule_.D; }

  const FeatureRule& rule_;
  T *const x_, *const own_, *const shift_,
                                *const gradients_;  // Σ_l of the gradients of features so far
  T* f_ = nullptr;
  const T* from_ = nullptr;
  int64_t token_ = 0, h_ = 0, count_ = 0, lanes_ = 0, l_ = 0, n_ = 0,
          rows_ = 0;     // rows of W for the current features
  bool halved_ = false;  // t, or the exponent of the factor of waves, includes - half_norm |k|²
};

}  // namespace longhand::attention::tile
