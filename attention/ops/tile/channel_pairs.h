// Query-key pairs in a block of tokens, weighted by the decays between them, one decay per token
// and channel l:
//
//   A_ji = Σ_l x_il k_jl e^(C_il - C_jl),  j <= i,   C_i = g_1 + … + g_i
//
// A factor e^(C_i - C_j) is at most 1, and g = -inf is a factor of 0.
#pragma once

#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// One decay per channel: e^(C_il - C_jl) is inside the sum over channels. Since e^-C_j alone may
/// overflow, a block is cut into stretches of one or more `step`s of tokens. A query i of a stretch
/// that begins at p and a key j before p have the factors e^(g_p + … + g_i) and
/// e^(g_(j+1) + … + g_(p-1)), both at most 1; their sum over channels is a matrix product. From cut
/// to cut, keys are multiplied by the decay of the stretch between. A key of the query's own
/// stretch has the factor e^-(g_p + … + g_j). A stretch ends at the first step that begins with a
/// channel below e^far_sum, so that results do not depend on later tokens. In its last step, once a
/// channel falls below `least`, queries use running products for keys of that step; keys of earlier
/// steps have factors of at most e^-far_sum. Sums within a stretch are in double precision. States
/// are multiplied by powers of sums: errors of a product of equal decays grow with their number.
template <class T>
class ChannelPairs {
 public:
  /// g is (B, N, H, m). Rows of A have `ld` elements. Each token has `keys` keys, in consecutive
  /// rows.
  ChannelPairs(const Tensor& g, int64_t m, int64_t ld, Scratch& scratch, int64_t keys = 1,
               int64_t /*tokens of a decay*/ = 1)
      : g_(g),
        m_(m),
        ld_(ld),
        of_token_(keys),
        decays_(scratch.take<T>(ld * m)),
        from_cut_(scratch.take<T>(ld * m)),
        to_cut_(scratch.take<T>(ld * m)),
        inverse_(scratch.take<T>(ld * m)),
        sums_(scratch.take<double>(m)),
        product_(scratch.take<T>(m)),
        keys_(scratch.take<T>(keys * ld * m)),
        queries_(scratch.take<T>(ld * m)),
        transposed_(scratch.take<T>(ld * m)),
        rows_(scratch.take<T>(keys * ld * m)),
        mask_(scratch.take<T>(ld * ld)) {}

  void start() {
    for (int64_t j = 0; j < ld_; ++j)
      for (int64_t i = 0; i < ld_; ++i) mask_[j * ld_ + i] = j <= i ? 1 : 0;
  }
  void use(int64_t b, int64_t h, int64_t first, int64_t count) {
    count_ = count, at_ = g_.at(b, first, h);
    simd([=, this] {
      std::fill_n(product_, m_, T{0});
      for (int64_t s = 0, p = 0; s < count_; s += step) {
        int far = 0;
        for (int64_t l = 0; l < m_; ++l) far |= product_[l] >= far_sum ? 0 : 1;
        if (far) p = s, std::fill_n(product_, m_, T{0});
        for (int64_t i = s; i < std::min(s + step, count_); ++i)
          for (int64_t l = 0; l < m_; ++l) product_[l] += at_[i * g_.token + l];
        stretches_[s / step].first = p, stretches_[p / step].end = std::min(s + step, count_);
      }
      for (int64_t p = 0; p < count_; p = end_of(p)) {
        int64_t& near = stretches_[p / step].near = 0;
        std::fill_n(sums_, m_, 0.0);
        for (int64_t i = p; i < end_of(p); ++i) {
          add_decay(i);
          int below = 0;
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l) {
            const T factor = Base<T>::power_of_sum(sums_[l]);
            from_cut_[i * m_ + l] = factor;
            inverse_[i * m_ + l] = 1 / factor;
            below |= factor >= least ? 0 : 1;
          }
          if (!below && near == i - p) ++near;
        }
        if (p + near == end_of(p)) {
          for (int64_t j = p; j < end_of(p); ++j)
            for (int64_t l = 0; l < m_; ++l)
              to_cut_[j * m_ + l] = from_cut_[(end_of(p) - 1) * m_ + l] * inverse_[j * m_ + l];
          continue;
        }
        std::fill_n(sums_, m_, 0.0);
        for (int64_t j = end_of(p) - 1; j >= p; --j) {
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l) {
            to_cut_[j * m_ + l] = Base<T>::power_of_sum(sums_[l]);
            decays_[j * m_ + l] = Base<T>::power(log_e * at_[j * g_.token + l]);
          }
          add_decay(j);
        }
      }
    });
  }

  /// Adds the decays of `count` tokens to `total` (m), as exponents of Base.
  void add_log_decay(int64_t b, int64_t h, int64_t first, int64_t count, T* total) const {
    simd([=, this, g = g_.at(b, first, h)] {
      for (int64_t l = 0; l < m_; ++l) {
        double sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(g[i * g_.token + l]);
        total[l] += static_cast<T>(Base<T>::log_e * sum);
      }
    });
  }
  void from_before(const T* x, int64_t token, T sign, T* to) const {
    simd([=, this] {
      std::fill_n(product_, m_, sign);
      for (int64_t p = 0; p < count_; p = end_of(p)) {
        for (int64_t i = p; i < end_of(p); ++i)
          weigh(x + i * token, from_cut_ + i * m_, to + i * m_);
        pass(p);
      }
    });
  }
  /// For keys: to_j = e^(C_last - C_j) x_j.
  void to_last(const T* x, int64_t token, T* to) const {
    simd([=, this] {
      std::fill_n(product_, m_, T{1});
      for (int64_t p = first_of(count_ - 1); p >= 0; p = p ? first_of(p - 1) : -1) {
        for (int64_t row = of_token_ * p; row < of_token_ * end_of(p); ++row)
          weigh(x + row * token, to_cut_ + row / of_token_ * m_, to + row * m_);
        pass(p);
      }
    });
  }
  void decay(T* S, int64_t E) const {
    simd([=, this] {
      for (int64_t l = 0; l < m_; ++l) {
        const T factor = whole(l);
        for (int64_t e = 0; e < E; ++e) S[l * E + e] *= factor;
      }
    });
  }
  void whole(double* factors) const {
    simd([=, this] {
      std::fill_n(factors, m_, 0.0);
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l) factors[l] += static_cast<double>(at_[i * g_.token + l]);
      for (int64_t l = 0; l < m_; ++l) factors[l] = math::exp(factors[l]);
    });
  }
  T whole(int64_t l) const {
    T factor = 1;
    for (int64_t p = 0; p < count_; p = end_of(p)) factor *= from_cut_[(end_of(p) - 1) * m_ + l];
    return factor;
  }

  void weights(const T* x, int64_t token, T factor, const T* k, int64_t key_token, bool strict,
               T* A) {
    for (int64_t p = 0; p < count_; p = end_of(p)) {
      const int64_t n = end_of(p) - p, lanes = whole_lanes(n), near = p + near_of(p);
      load_queries(p, x, token);
      load_keys(p, k, key_token);
      pack_transposed(queries_, m_, n, m_, factor, transposed_);
      if (p > 0)
        kernels::gemm_tile<T>(of_token_ * p, lanes, m_, {keys_, m_, 1}, transposed_, lanes, A + p,
                              ld_, false);
      for (int64_t j = p; j < near; j += step)
        kernels::gemm_tile<T>(of_token_ * std::min(step, near - j), p + lanes - j, m_,
                              {keys_ + of_token_ * j * m_, m_, 1}, transposed_ + j - p, lanes,
                              A + of_token_ * j * ld_ + j, ld_, false);
    }
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t p = i / step * step;
        for (int64_t row = of_token_ * (i + 1); row < of_token_ * std::min(p + step, count_); ++row)
          A[row * ld_ + i] = 0;
        if (i < first_of(i) + near_of(i)) continue;
        std::copy_n(x + i * token, m_, product_);
        for (int64_t j = i; j >= p; --j) {
          for (int64_t row = of_token_ * j; row < of_token_ * (j + 1); ++row)
            A[row * ld_ + i] = factor * kernels::row_dot(product_, k + row * key_token, m_);
          for (int64_t l = 0; l < m_; ++l) product_[l] *= decays_[j * m_ + l];
        }
      }
    });
    if (strict) clear_diagonal(A, ld_, count_, of_token_);
  }
  const T* within() const { return mask_; }
  void gradients(const T* dA, const T* x, int64_t token, const T* k, int64_t key_token, T* dx,
                 bool add_x, T* dk, bool add_k) {
    for (int64_t p = 0; p < count_; p = end_of(p)) {
      const int64_t near = p + near_of(p), others = end_of(p) - near;
      load_keys(p, k, key_token);
      for (int64_t i = p; i < near; i += step)
        kernels::gemm_tile<T>(std::min(step, near - i), m_, of_token_ * std::min(i + step, near),
                              {dA + i, 1, ld_}, keys_, m_, rows_ + (i - p) * m_, m_, false);
      kernels::gemm_tile<T>(others, m_, of_token_ * last_step(p), {dA + near, 1, ld_}, keys_, m_,
                            rows_ + (near - p) * m_, m_, false);
      add_weighed(p, end_of(p) - p, 1, rows_, lift, from_cut_, dx, add_x);
    }
    // The gradients of keys relative to a cut: those relative to the next cut, times the decay of
    // the stretch in between, plus the contributions of the queries of that stretch.
    for (int64_t p = first_of(count_ - 1), before;; p = before) {
      const int64_t near = p + near_of(p);
      load_queries(p, x, token);
      for (int64_t j = p; j < near; j += step)
        kernels::gemm_tile<T>(of_token_ * std::min(step, near - j), m_,
                              (j < last_step(p) ? end_of(p) : near) - j,
                              {dA + of_token_ * j * ld_ + j, ld_, 1}, queries_ + (j - p) * m_, m_,
                              rows_ + of_token_ * (j - p) * m_, m_, false);
      const bool later = end_of(p) < count_, add = add_k || later;
      add_weighed(p, near - p, of_token_, rows_, 1 / lift, inverse_, dk, add);
      if (!add) std::fill(dk + of_token_ * near * m_, dk + of_token_ * end_of(p) * m_, T{0});
      if (p == 0) break;
      if (later) decay_rows(p, p, keys_);
      kernels::gemm_tile<T>(of_token_ * p, m_, end_of(p) - p, {dA + p, ld_, 1}, queries_, m_, keys_,
                            m_, later);
      before = first_of(p - 1);
      add_weighed(before, p - before, of_token_, keys_ + of_token_ * before * m_, 1 / lift, to_cut_,
                  dk, add_k);
    }
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i) {
        if (i < first_of(i) + near_of(i)) continue;
        std::fill_n(product_, m_, T{1});
        for (int64_t j = i; j >= i / step * step; --j) {
          const T* const query = x + i * token;
          for (int64_t row = of_token_ * j; row < of_token_ * (j + 1); ++row) {
            const T* const key = k + row * key_token;
            const T d = dA[row * ld_ + i];
#pragma GCC ivdep
            for (int64_t l = 0; l < m_; ++l) {
              dx[i * m_ + l] += d * product_[l] * key[l];
              dk[row * m_ + l] += d * product_[l] * query[l];
            }
          }
          for (int64_t l = 0; l < m_; ++l) product_[l] *= decays_[j * m_ + l];
        }
      }
    });
  }
  /// dg_il = end_l + Σ_(t>=i) change_tl; changes `end`. change(i, row) writes a row of changes.
  template <class F>
  void decay_gradients(double* end, F change, int64_t b, int64_t h, int64_t first, Gradient& dg) {
    const Heads<T> to(dg.to);
    simd([=, this, p = to.at(b, first, h), token = to.token, add = dg.beta != 0] {
      for (int64_t i = count_ - 1; i >= 0; --i) {
        change(i, product_);
#pragma GCC ivdep
        for (int64_t l = 0; l < m_; ++l) {
          T& x = p[i * token + l];
          end[l] += static_cast<double>(product_[l]);
          x = static_cast<T>(end[l]) + (add ? x : T{0});
        }
      }
    });
  }

 private:
  static constexpr T log_e = static_cast<T>(Base<T>::log_e);
  // Queries are multiplied by factors of at most `lift`, keys by at most 1 / (lift least): both are
  // far from overflow and underflow.
  static constexpr T least = static_cast<T>(0x1p-120), lift = static_cast<T>(0x1p60),
                     far_sum = T{-50};

  // The stretch of a token: its begin and end, and the number of its tokens up to which no channel
  // has decayed below `least`.
  int64_t first_of(int64_t i) const { return stretches_[i / step].first; }
  int64_t end_of(int64_t i) const { return stretches_[first_of(i) / step].end; }
  int64_t near_of(int64_t i) const { return stretches_[first_of(i) / step].near; }
  int64_t last_step(int64_t i) const { return (end_of(i) - 1) / step * step; }
  // For use inside simd(): sums += the decay of token i
  void add_decay(int64_t i) const {
    for (int64_t l = 0; l < m_; ++l)
      sums_[l] += Base<T>::log_e * static_cast<double>(at_[i * g_.token + l]);
  }
  // For use inside simd(): to = product powers x
  void weigh(const T* x, const T* powers, T* to) const {
#pragma GCC ivdep
    for (int64_t l = 0; l < m_; ++l) to[l] = product_[l] * powers[l] * x[l];
  }
  // product *= the decay of the stretch that begins at p
  void pass(int64_t p) const {
    for (int64_t l = 0; l < m_; ++l) product_[l] *= from_cut_[(end_of(p) - 1) * m_ + l];
  }

  // Multiplies the keys of the first n tokens by the decay of the stretch that begins at p.
  void decay_rows(int64_t p, int64_t n, T* rows) const {
    simd([=, this, whole = from_cut_ + (end_of(p) - 1) * m_] {
      for (int64_t row = 0; row < of_token_ * n; ++row)
        for (int64_t l = 0; l < m_; ++l) rows[row * m_ + l] *= whole[l];
    });
  }
  // Loads the queries of the stretch after a cut, multiplied by their powers and by `lift`.
  void load_queries(int64_t p, const T* x, int64_t token) const {
    simd([=, this] {
      for (int64_t i = p; i < end_of(p); ++i)
        for (int64_t l = 0; l < m_; ++l)
          queries_[(i - p) * m_ + l] = lift * from_cut_[i * m_ + l] * x[i * token + l];
    });
  }
  // Loads their keys, before the cut and near it, divided by `lift`. Called for cuts in order.
  void load_keys(int64_t p, const T* k, int64_t key_token) const {
    const int64_t before = p > 0 ? first_of(p - 1) : 0;
    decay_rows(before, before, keys_);
    simd([=, this] {
      const auto put = [&](int64_t first, int64_t n, const T* powers) {
        for (int64_t row = of_token_ * first; row < of_token_ * (first + n); ++row)
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l)
            keys_[row * m_ + l] =
                1 / lift * powers[row / of_token_ * m_ + l] * k[row * key_token + l];
      };
      put(before, p - before, to_cut_);
      put(p, near_of(p), inverse_);
    });
  }
  // For n tokens from p on with `each` rows: to_i = factor powers_i row_(i-p); += with `add`
  void add_weighed(int64_t p, int64_t n, int64_t each, const T* rows, T factor, const T* powers,
                   T* to, bool add) const {
    simd([=, this] {
      for (int64_t row = 0; row < each * n; ++row) {
        T* const y = to + (each * p + row) * m_;
#pragma GCC ivdep
        for (int64_t l = 0; l < m_; ++l)
          y[l] =
              factor * powers[(p + row / each) * m_ + l] * rows[row * m_ + l] + (add ? y[l] : T{0});
      }
    });
  }

  const Heads<const T> g_;
  const int64_t m_, ld_, of_token_;  // of_token: keys per token
  // e^g of the tokens of a stretch with queries beyond the near ones; the product of e^g from the
  // previous cut up to a token, and after it up to the next cut; the inverse of the former.
  T *const decays_, *const from_cut_, *const to_cut_, *const inverse_;
  double* const sums_;
  T *const product_, *const keys_, *const queries_, *const transposed_, *const rows_, *const mask_;
  const T* at_ = nullptr;
  int64_t count_ = 0;
  struct Stretch {
    int64_t first, end, near;
  } stretches_[max_scan_block / step] = {};
};

}  // namespace longhand::attention::tile
