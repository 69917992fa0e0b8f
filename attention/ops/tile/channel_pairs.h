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
void clear_diagonal(T* A, int64_t count) {
  for (int64_t j = 0; j < count; ++j) A[j * (block + 1)] = 0;
}

/// One decay a channel: e^(C_il - C_jl) is inside the sum over channels. A factor e^-C_j alone may
/// overflow. Therefore a block is cut at the start of each step of 16 tokens: a query and a key on
/// opposite sides of a cut p have the factors e^(g_p + … + g_i) and e^(g_(j+1) + … + g_(p-1)), both at
/// most 1, and their sum over channels is a product of matrices. Within a step the factors are
/// running products. No differences of sums are computed.
template <class T>
class ChannelPairs {
 public:
  /// g is (B, N, H, m).
  ChannelPairs(const Tensor& g, int64_t m, Scratch& scratch)
      : g_(g),
        m_(m),
        decays_(scratch.take<T>(block * m)),
        from_before_(scratch.take<T>(block * m)),
        to_last_(scratch.take<T>(block * m)),
        sum_(scratch.take<T>(m)),
        key_factors_(scratch.take<T>(block / step * (block - step) / 2 * m)),
        query_factors_(scratch.take<T>(block * m)),
        keys_(scratch.take<T>(block * m)),
        queries_(scratch.take<T>(step * m)),
        transposed_(scratch.take<T>(step * m)),
        rows_(scratch.take<T>(block * m)),
        mask_(scratch.take<T>(block * block)) {}

  void start() {
    for (int64_t j = 0; j < block; ++j)
      for (int64_t i = 0; i < block; ++i) mask_[j * block + i] = j <= i ? 1 : 0;
  }
  void use(int64_t b, int64_t h, int64_t first, int64_t count) {
    count_ = count, at_ = g_.at(b, first, h), cuts_loaded_ = false;
    query_powers(0, count, from_before_);
    key_powers(count, to_last_);
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l)
          decays_[i * m_ + l] = Base<T>::power(log_e * at_[i * g_.token + l]);
    });
  }

  void from_before(const T* x, int64_t token, T* to) const {
    weigh(x, token, count_, from_before_, to);
  }
  void to_last(const T* x, int64_t token, T* to) const { weigh(x, token, count_, to_last_, to); }
  void decay(T* S, int64_t E) const {
    simd([=, this, whole = from_before_ + (count_ - 1) * m_] {
      for (int64_t l = 0; l < m_; ++l)
        for (int64_t e = 0; e < E; ++e) S[l * E + e] *= whole[l];
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
  T whole(int64_t l) const { return from_before_[(count_ - 1) * m_ + l]; }

  void weights(const T* x, int64_t token, const T* k, int64_t key_token, bool strict, T* A) {
    load_cuts();
    for (int64_t p = step; p < count_; p += step) {
      load_cut(p, x, token, k, key_token);
      const int64_t n = end_of(p) - p;
      pack_transposed(queries_, m_, n, step, m_, T{1}, transposed_);
      kernels::gemm_tile<T>(p, n, m_, {keys_, m_, 1}, transposed_, step, A + p, block, false);
    }
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t p = i / step * step;
        std::copy_n(x + i * token, m_, sum_);
        for (int64_t j = i; j >= p; --j) {
          A[j * block + i] = kernels::row_dot(sum_, k + j * key_token, m_);
          for (int64_t l = 0; l < m_; ++l) sum_[l] *= decays_[j * m_ + l];
        }
        for (int64_t j = i + 1; j < end_of(p); ++j) A[j * block + i] = 0;
      }
    });
    if (strict) clear_diagonal(A, count_);
  }
  const T* within() const { return mask_; }
  void gradients(const T* dA, const T* x, int64_t token, const T* k, int64_t key_token, T* dx,
                 T* dk) {
    load_cuts();
    for (int64_t p = step; p < count_; p += step) {
      const int64_t n = end_of(p) - p;
      load_cut(p, x, token, k, key_token);
      kernels::gemm_tile<T>(n, m_, p, {dA + p, 1, block}, keys_, m_, rows_, m_, false);
      add_weighed(query_factors_ + p * m_, n, dx + p * m_);
      kernels::gemm_tile<T>(p, m_, n, {dA + p, block, 1}, queries_, m_, rows_, m_, false);
      add_weighed(key_factors(p), p, dk);
    }
    simd([=, this] {
      for (int64_t i = 0; i < count_; ++i) {
        std::fill_n(sum_, m_, T{1});
        for (int64_t j = i; j >= i / step * step; --j) {
          const T *const key = k + j * key_token, *const query = x + i * token;
          const T d = dA[j * block + i];
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l) {
            dx[i * m_ + l] += d * sum_[l] * key[l];
            dk[j * m_ + l] += d * sum_[l] * query[l];
            sum_[l] *= decays_[j * m_ + l];
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
  // The powers of the keys before a cut; those of earlier cuts precede them.
  T* key_factors(int64_t p) const { return key_factors_ + p / step * (p - step) / 2 * m_; }

  // e^(g_p + … + g_i) for the n queries from p on.
  void query_powers(int64_t p, int64_t n, T* powers) const {
    simd([=, this, g = at_ + p * g_.token] {
      std::fill_n(sum_, m_, T{0});
      for (int64_t i = 0; i < n; ++i)
        for (int64_t l = 0; l < m_; ++l) {
          sum_[l] += log_e * g[i * g_.token + l];
          powers[i * m_ + l] = Base<T>::power(sum_[l]);
        }
    });
  }
  // e^(g_(j+1) + … + g_(p-1)) for the keys before p.
  void key_powers(int64_t p, T* powers) const {
    simd([=, this] {
      std::fill_n(sum_, m_, T{0});
      for (int64_t j = p - 1; j >= 0; --j)
        for (int64_t l = 0; l < m_; ++l) {
          powers[j * m_ + l] = Base<T>::power(sum_[l]);
          sum_[l] += log_e * at_[j * g_.token + l];
        }
    });
  }
  void weigh(const T* x, int64_t token, int64_t n, const T* powers, T* to) const {
    simd([=, this] {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t l = 0; l < m_; ++l) to[i * m_ + l] = powers[i * m_ + l] * x[i * token + l];
    });
  }
  // The powers of all cuts, which only pairs need.
  void load_cuts() {
    if (cuts_loaded_) return;
    for (int64_t p = step; p < count_; p += step) {
      key_powers(p, key_factors(p));
      query_powers(p, end_of(p) - p, query_factors_ + p * m_);
    }
    cuts_loaded_ = true;
  }
  // The keys before a cut and the queries of the step after it, multiplied by their powers.
  void load_cut(int64_t p, const T* x, int64_t token, const T* k, int64_t key_token) {
    weigh(k, key_token, p, key_factors(p), keys_);
    weigh(x + p * token, token, end_of(p) - p, query_factors_ + p * m_, queries_);
  }
  void add_weighed(const T* powers, int64_t n, T* to) const {
    simd([=, this] {
      for (int64_t i = 0; i < n * m_; ++i) to[i] += powers[i] * rows_[i];
    });
  }

  const Heads<const T> g_;
  const int64_t m_;
  T *const decays_, *const from_before_, *const to_last_, *const sum_;
  T *const key_factors_, *const query_factors_, *const keys_, *const queries_, *const transposed_;
  T *const rows_, *const mask_;
  const T* at_ = nullptr;
  int64_t count_ = 0;
  bool cuts_loaded_ = false;
};

}  // namespace longhand::attention::tile
