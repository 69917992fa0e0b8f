// Pairs of a query and a key in a block of tokens, weighed by the decays between them, one a token and
// channel l:
//
//   A_ji = Σ_l x_il k_jl e^(C_il - C_jl),  j <= i,   C_i = g_1 + … + g_i
//
// All exponents are at most 0, and g = -inf is a factor of 0.
#pragma once

#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// Sets A_jj to 0: the weights of keys before a query.
template <class T>
void clear_diagonal(T* A, int64_t ld, int64_t count) {
  for (int64_t j = 0; j < count; ++j) A[j * (ld + 1)] = 0;
}

/// One decay a channel: e^(C_il - C_jl) is inside the sum over channels. A factor e^-C_j alone may
/// overflow. Therefore a block is cut at the start of each step of 16 tokens: a query i in the step
/// that begins at p and a key j before it have the factors e^(g_p + … + g_i) and e^(g_(j+1) + … +
/// g_(p-1)), both at most 1, and their sum over channels is a product of matrices. Pairs within a step
/// have running products of the decays of tokens, and from cut to cut the keys are multiplied by the
/// decay of the step between: there are three exponentials a token and channel. A state is multiplied
/// by powers of sums, since the rounding error of a product of equal decays grows with their number.
/// No differences of sums are computed.
template <class T>
class ChannelPairs {
 public:
  /// g is (B, N, H, m). Rows of A have `ld` numbers.
  ChannelPairs(const Tensor& g, int64_t m, int64_t ld, Scratch& scratch)
      : g_(g),
        m_(m),
        ld_(ld),
        decays_(scratch.take<T>(ld * m)),
        from_cut_(scratch.take<T>(ld * m)),
        to_cut_(scratch.take<T>(ld * m)),
        product_(scratch.take<T>(m)),
        keys_(scratch.take<T>(ld * m)),
        queries_(scratch.take<T>(step * m)),
        transposed_(scratch.take<T>(step * m)),
        rows_(scratch.take<T>(step * m)),
        mask_(scratch.take<T>(ld * ld)) {}

  void start() {
    for (int64_t j = 0; j < ld_; ++j)
      for (int64_t i = 0; i < ld_; ++i) mask_[j * ld_ + i] = j <= i ? 1 : 0;
  }
  void use(int64_t b, int64_t h, int64_t first, int64_t count) {
    count_ = count, at_ = g_.at(b, first, h);
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l)
          decays_[i * m_ + l] = Base<T>::power(log_e * at_[i * g_.token + l]);
      for (int64_t p = 0; p < count_; p += step) {
        std::fill_n(product_, m_, T{0});
        for (int64_t i = p; i < end_of(p); ++i)
          for (int64_t l = 0; l < m_; ++l) {
            product_[l] += log_e * at_[i * g_.token + l];
            from_cut_[i * m_ + l] = Base<T>::power(product_[l]);
          }
        std::fill_n(product_, m_, T{0});
        for (int64_t j = end_of(p) - 1; j >= p; --j)
          for (int64_t l = 0; l < m_; ++l) {
            to_cut_[j * m_ + l] = Base<T>::power(product_[l]);
            product_[l] += log_e * at_[j * g_.token + l];
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
  void from_before(const T* x, int64_t token, T* to) const {
    simd([=, this] {
      std::fill_n(product_, m_, T{1});
      for (int64_t p = 0; p < count_; p += step) {
        for (int64_t i = p; i < end_of(p); ++i) weigh(i, x, token, from_cut_, to + i * m_);
        pass(p);
      }
    });
  }
  void to_last(const T* x, int64_t token, T* to) const {
    simd([=, this] {
      std::fill_n(product_, m_, T{1});
      for (int64_t p = (count_ - 1) / step * step; p >= 0; p -= step) {
        for (int64_t j = p; j < end_of(p); ++j) weigh(j, x, token, to_cut_, to + j * m_);
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
    for (int64_t p = 0; p < count_; p += step) factor *= from_cut_[(end_of(p) - 1) * m_ + l];
    return factor;
  }

  void weights(const T* x, int64_t token, const T* k, int64_t key_token, bool strict, T* A) {
    for (int64_t p = step; p < count_; p += step) {
      load_cut(p, x, token, k, key_token);
      const int64_t n = end_of(p) - p;
      pack_transposed(queries_, m_, n, step, m_, T{1}, transposed_);
      kernels::gemm_tile<T>(p, n, m_, {keys_, m_, 1}, transposed_, step, A + p, ld_, false);
    }
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t p = i / step * step;
        std::copy_n(x + i * token, m_, product_);
        for (int64_t j = i; j >= p; --j) {
          A[j * ld_ + i] = kernels::row_dot(product_, k + j * key_token, m_);
          for (int64_t l = 0; l < m_; ++l) product_[l] *= decays_[j * m_ + l];
        }
        for (int64_t j = i + 1; j < end_of(p); ++j) A[j * ld_ + i] = 0;
      }
    });
    if (strict) clear_diagonal(A, ld_, count_);
  }
  const T* within() const { return mask_; }
  void gradients(const T* dA, const T* x, int64_t token, const T* k, int64_t key_token, T* dx,
                 T* dk) {
    for (int64_t p = step; p < count_; p += step) {
      const int64_t n = end_of(p) - p;
      load_cut(p, x, token, k, key_token);
      kernels::gemm_tile<T>(n, m_, p, {dA + p, 1, ld_}, keys_, m_, rows_, m_, false);
      add_weighed(p, rows_, from_cut_, n, dx);
    }
    // The gradients of keys relative to a cut, which are those relative to the cut after it times the
    // decay of the step between, and what the queries of that step add.
    for (int64_t p = (count_ - 1) / step * step; p > 0; p -= step) {
      const int64_t n = end_of(p) - p;
      const bool later = end_of(p) < count_;
      if (later) decay_rows(p, p, keys_);
      load_queries(p, x, token);
      kernels::gemm_tile<T>(p, m_, n, {dA + p, ld_, 1}, queries_, m_, keys_, m_, later);
      add_weighed(p - step, keys_ + (p - step) * m_, to_cut_, step, dk);
    }
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i) {
        std::fill_n(product_, m_, T{1});
        for (int64_t j = i; j >= i / step * step; --j) {
          const T *const key = k + j * key_token, *const query = x + i * token;
          const T d = dA[j * ld_ + i];
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l) {
            dx[i * m_ + l] += d * product_[l] * key[l];
            dk[j * m_ + l] += d * product_[l] * query[l];
            product_[l] *= decays_[j * m_ + l];
          }
        }
      }
    });
  }
  /// dg_il = end_l + Σ_(t>=i) change_tl; changes `end`.
  void decay_gradients(double* end, const T* change, int64_t b, int64_t h, int64_t first,
                       Gradient& dg) {
    const Heads<T> to(dg.to);
    simd([=, this, p = to.at(b, first, h), token = to.token, add = dg.beta != 0] {
      for (int64_t i = count_ - 1; i >= 0; --i)
#pragma GCC ivdep
        for (int64_t l = 0; l < m_; ++l) {
          T& x = p[i * token + l];
          end[l] += static_cast<double>(change[i * m_ + l]);
          x = static_cast<T>(end[l]) + (add ? x : T{0});
        }
    });
  }

 private:
  static constexpr T log_e = static_cast<T>(Base<T>::log_e);

  int64_t end_of(int64_t p) const { return std::min(p + step, count_); }

  // For use inside simd(): to = product powers_i x_i
  void weigh(int64_t i, const T* x, int64_t token, const T* powers, T* to) const {
#pragma GCC ivdep
    for (int64_t l = 0; l < m_; ++l) to[l] = product_[l] * powers[i * m_ + l] * x[i * token + l];
  }
  // product *= the decay of the step that begins at p
  void pass(int64_t p) const {
    for (int64_t l = 0; l < m_; ++l) product_[l] *= from_cut_[(end_of(p) - 1) * m_ + l];
  }

  // The first n rows, times the decay of the step that begins at p.
  void decay_rows(int64_t p, int64_t n, T* rows) const {
    simd([=, this, whole = from_cut_ + (end_of(p) - 1) * m_] {
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < m_; ++l) rows[j * m_ + l] *= whole[l];
    });
  }
  // The queries of the step after a cut, multiplied by their powers.
  void load_queries(int64_t p, const T* x, int64_t token) const {
    simd([=, this] {
      for (int64_t i = p; i < end_of(p); ++i)
        for (int64_t l = 0; l < m_; ++l)
          queries_[(i - p) * m_ + l] = from_cut_[i * m_ + l] * x[i * token + l];
    });
  }
  // Both the queries and the keys before the cut, for cuts in order.
  void load_cut(int64_t p, const T* x, int64_t token, const T* k, int64_t key_token) const {
    load_queries(p, x, token);
    if (p > step) decay_rows(p - step, p - step, keys_);
    simd([=, this] {
      for (int64_t j = p - step; j < p; ++j)
        for (int64_t l = 0; l < m_; ++l)
          keys_[j * m_ + l] = to_cut_[j * m_ + l] * k[j * key_token + l];
    });
  }
  // The n tokens from p on: to_i += powers_i row_(i-p)
  void add_weighed(int64_t p, const T* rows, const T* powers, int64_t n, T* to) const {
    simd([=, this, powers_of_p = powers + p * m_, to_p = to + p * m_] {
      for (int64_t i = 0; i < n * m_; ++i) to_p[i] += powers_of_p[i] * rows[i];
    });
  }

  const Heads<const T> g_;
  const int64_t m_, ld_;
  // e^g of each token; its product from the cut before a token up to it, and after it up to the next cut.
  T *const decays_, *const from_cut_, *const to_cut_;
  T *const product_, *const keys_, *const queries_, *const transposed_, *const rows_, *const mask_;
  const T* at_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace longhand::attention::tile
