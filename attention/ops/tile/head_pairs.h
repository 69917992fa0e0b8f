// Pairs with one decay per token for all channels, or none. Same interface as ChannelPairs.
#pragma once

#include <cmath>
#include <optional>

#include "longhand/attention/ops/tile/block_decay.h"
#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// No decay, or one per token: e^(C_i - C_j) is a factor of the product.
template <class T>
class HeadPairs {
 public:
  /// g is (B, N, H, 1), or undefined for 0. Queries and keys have m channels; rows of A have `ld`.
  /// If each g precedes several steps, the tokens of a block are those steps.
  HeadPairs(const Tensor& g, int64_t m, int64_t ld, Scratch& scratch, int64_t keys = 1,
            int64_t steps = 1)
      : m_(m),
        ld_(ld),
        transposed_(scratch.take<T>(ld * m)),
        of_token_(keys),
        of_decay_(steps),
        decay_(ld, scratch),
        steps_(scratch.take<double>(ld)),
        zeros_(scratch.take<T>(ld)) {
    if (g.defined()) g_.emplace(g);
  }

  void start() {
    decay_.clear();
    std::fill_n(zeros_, ld_, T{0});
  }
  /// Selects `count` tokens, starting with the decay `first`.
  void use(int64_t b, int64_t h, int64_t first, int64_t count) {
    count_ = count;
    if (!g_) return;
    const T* const g = g_->at(b, first, h);
    for (int64_t i = 0; i < count; ++i)
      steps_[i] =
          i % of_decay_ ? 0 : Base<T>::log_e * static_cast<double>(g[i / of_decay_ * g_->token]);
    decay_.set(steps_, count);
  }
  /// Adds the decays of `count` tokens to `total`, as an exponent of Base.
  void add_log_decay(int64_t b, int64_t h, int64_t first, int64_t count, T* total) const {
    const T* const g = g_->at(b, first, h);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(g[i * g_->token]);
    *total += static_cast<T>(Base<T>::log_e * sum);
  }

  /// to_i = factor e^C_i x_i, contiguous rows; `to` may be x.
  void from_before(const T* x, int64_t token, T factor, T* to) const {
    weigh(x, token, factor, decay_.from_before(), 1, to);
  }
  /// For keys: to_j = e^(C_last - C_j) x_j
  void to_last(const T* x, int64_t token, T* to) const {
    weigh(x, token, T{1}, decay_.to_last(), of_token_, to);
  }
  /// S = e^C_last S for S (m, E).
  void decay(T* S, int64_t E) const {
    if (!g_) return;
    simd([=, n = m_ * E, factor = decay_.whole()] {
      for (int64_t i = 0; i < n; ++i) S[i] *= factor;
    });
  }
  /// e^C_last for all channels, (m), in double precision.
  void whole(double* factors) const {
    double sum = 0;
    if (g_)
      for (int64_t i = 0; i < count_; ++i) sum += steps_[i];
    std::fill_n(factors, m_, std::exp(sum / Base<T>::log_e));
  }
  /// e^C_last for one channel.
  T whole(int64_t) const { return g_ ? decay_.whole() : T{1}; }

  /// A, for `factor` x and k with rows of stride `token` and `key_token`. With `strict`, A_jj = 0.
  void weights(const T* x, int64_t token, T factor, const T* k, int64_t key_token, bool strict,
               T* A) {
    pack_transposed(x, token, count_, m_, factor, transposed_);
    pair_weights<T>(count_, m_, {k, key_token, 1}, transposed_, zeros_, decay_.within(), A, ld_,
                    of_token_);
    if (strict) clear_diagonal(A, ld_, count_, of_token_);
  }
  /// The factors of gradients of A that are common to all channels.
  const T* within() const { return decay_.within(); }
  /// The gradients of x and k, contiguous rows, through dA, which includes within(). With add_x and
  /// add_k they are added to the existing values.
  void gradients(const T* dA, const T* x, int64_t token, const T* k, int64_t key_token, T* dx,
                 bool add_x, T* dk, bool add_k) {
    sum_earlier(dA, ld_, k, key_token, count_, m_, dx, m_, add_x, of_token_);
    sum_later(dA, ld_, x, token, count_, m_, dk, m_, add_k, of_token_);
  }
  /// dg_i = Σ_l (end_l + Σ_(t>=i) change_tl), to dg (B, N, H, 1); change(i, row) writes changes.
  template <class F>
  void decay_gradients(double* end, F change, int64_t b, int64_t h, int64_t first, Gradient& dg) {
    const Heads<T> to(dg.to);
    T* const p = to.at(b, first, h);
    double sum = 0;
    for (int64_t l = 0; l < m_; ++l) sum += end[l];
    simd([&, this, add = dg.beta != 0] {
      for (int64_t i = count_ - 1; i >= 0; --i) {
        change(i, transposed_);
        sum += static_cast<double>(kernels::row_sum(transposed_, m_));
        if (i % of_decay_) continue;
        T& x = p[i / of_decay_ * to.token];
        x = static_cast<T>(sum) + (add ? x : T{0});
      }
    });
  }

 protected:
  const int64_t m_, ld_;
  int64_t count_ = 0;
  T* const transposed_;  // of a block, (m, ld)

 private:
  void weigh(const T* x, int64_t token, T factor, const T* powers, int64_t each, T* to) const {
    simd([=, this] {
      for (int64_t row = 0; row < each * count_; ++row)
        for (int64_t l = 0; l < m_; ++l)
          to[row * m_ + l] = factor * powers[row / each] * x[row * token + l];
    });
  }

  std::optional<Heads<const T>> g_;
  const int64_t of_token_, of_decay_;  // of_token: keys; of_decay: tokens
  BlockDecay<T> decay_;
  double* const steps_;
  T* const zeros_;
};

}  // namespace longhand::attention::tile
