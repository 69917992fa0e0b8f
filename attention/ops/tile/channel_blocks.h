// Blocks of a scan whose state decays by one factor a token and feature: the formulas of
// head_blocks.h with e^(C_il - C_jl) inside the sum over features l,
//
//   A_ji = Σ_l q_il k_jl e^(C_il - C_jl)
//
// A factor e^-C_j alone may overflow. Therefore a block is cut at the start of each step of 16
// tokens: a query and a key on opposite sides of a cut p have the factors e^(g_p + … + g_i) and
// e^(g_(j+1) + … + g_(p-1)), both at most 1, and their sum over features is a product of matrices.
// Within a step the factors are running products. No differences of sums are computed, and g = -inf
// is a factor of 0.
#pragma once

#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// The blocks of one head at a time, with the interface of HeadBlocks; q and k are the features.
template <class T>
class ChannelBlocks {
 public:
  ChannelBlocks(const ScanRule& rule, const ScanTensors& x, int, bool gradients, Scratch& scratch)
      : rule_(rule),
        q_(x.q),
        k_(x.k),
        v_(x.v),
        g_(x.log_decay),
        m_(rule.features.m),
        decays_(take(scratch)),
        from_before_(take(scratch)),
        to_last_(take(scratch)),
        sum_(scratch.take<T>(m_)),
        total_(scratch.take<double>(m_)),
        key_factors_(take(scratch)),
        query_factors_(take(scratch)),
        keys_(take(scratch)),
        queries_(take(scratch)),
        transposed_(scratch.take<T>(m_ * std::max(block, rule.E))),
        A_(scratch.take<T>(block * block)),
        delta_(scratch.take<T>(block)) {
    if (!gradients) return;
    dA_ = scratch.take<T>(block * block);
    dn_transposed_ = scratch.take<T>(block * rule.E);
    rows_ = scratch.take<T>(block * std::max(m_, rule.E));
    dq_ = take(scratch);
    dk_ = take(scratch);
    dg_ = scratch.take<double>(m_);
    mask_ = scratch.take<T>(block * block);
  }

  void start(int64_t b, int64_t h) {
    b_ = b, h_ = h;
    if (mask_)
      for (int64_t j = 0; j < block; ++j)
        for (int64_t i = 0; i < block; ++i) mask_[j * block + i] = j <= i ? 1 : 0;
  }
  void load_keys(int, int64_t block_, T, bool) { use(block_, 0); }
  void load_queries(int64_t) {}
  T scale_before(int64_t) const { return 0; }

  /// Computes the decays of a block: from its start, to its end, and of each token.
  void use(int64_t block_, T) {
    first_ = rule_.first(block_), count_ = rule_.count(block_);
    query_powers(0, count_, from_before_);
    key_powers(count_, to_last_);
    simd([=, this, g = g_.at(b_, first_, h_)] {
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l)
          decays_[i * m_ + l] = Base<T>::power(log_e * g[i * g_.token + l]);
    });
  }
  /// Adds the log decays of a block to `total`, as exponents of Base.
  void add_log_decay(int64_t block_, T* total) const {
    const T* const g = g_.at(b_, rule_.first(block_), h_);
    simd([=, this, count = rule_.count(block_)] {
      std::fill_n(total_, m_, 0.0);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t l = 0; l < m_; ++l) total_[l] += static_cast<double>(g[i * g_.token + l]);
      for (int64_t l = 0; l < m_; ++l)
        total[l] += static_cast<T>(static_cast<double>(log_e) * total_[l]);
    });
  }

  void attend(int, int64_t, const T* S, T* to, int64_t token) {
    const int64_t E = rule_.E;
    weights();
    weigh(q_.at(b_, first_, h_), q_.token, count_, from_before_, queries_);
    kernels::gemm_tile<T>(count_, E, m_, {queries_, m_, 1}, S, E, to, token, false);
    add_earlier(A_, v_.at(b_, first_, h_), v_.token, count_, E, to, token);
    if (!rule_.normalizer) return;
    simd([=, this, z = S + m_ * E] {
      for (int64_t i = 0; i < count_; ++i) {
        T den = kernels::row_dot(queries_ + i * m_, z, m_);
        for (int64_t j = 0; j <= i; ++j) den += A_[j * block + i];
        to[i * token + E] = den;
      }
    });
  }

  void advance(int, int64_t, T* S) {
    weigh(k_.at(b_, first_, h_), k_.token, count_, to_last_, keys_);
    add_block(S, keys_, v_.at(b_, first_, h_), v_.token, nullptr);
  }
  void retreat(int64_t, const Heads<const T>& dout, T* R) {
    load_delta(dout);
    weigh(q_.at(b_, first_, h_), q_.token, count_, from_before_, queries_);
    add_block(R, queries_, dout.at(b_, first_, h_), dout.token, delta_);
  }

  void gradients(int, int64_t, const Heads<const T>& dout, const T* S, T* R, ScanGradients& to) {
    const int64_t E = rule_.E;
    const T *const dn = dout.at(b_, first_, h_), *const values = v_.at(b_, first_, h_);
    load_delta(dout);
    if (to.v.to.defined()) value_gradients(dn, dout.token, R, to.v);
    const int64_t lanes = whole_lanes(count_);
    pack_transposed(dn, dout.token, count_, lanes, E, T{1}, dn_transposed_);
    pair_weights<T>(count_, lanes, E, {values, v_.token, 1}, dn_transposed_, delta_, mask_, dA_);
    // Through the states, then through pairs on opposite sides of a cut, then through pairs in a
    // step.
    from_state(values, v_.token, R, nullptr, to_last_, dk_);
    from_state(dn, dout.token, S, delta_, from_before_, dq_);
    for (int64_t p = step; p < count_; p += step) cut_gradients(p);
    for (int64_t p = 0; p < count_; p += step) step_gradients(p);
    retreat(0, dout, R);
    if (to.log_decay.to.defined()) {
      decay_gradients(to.log_decay);
      end_decay(S, R);
    }
    if (to.q.to.defined()) put(dq_, to.q);
    if (to.k.to.defined()) put(dk_, to.k);
  }
  void end_decay(const T* S, const T* R) {
    std::fill_n(dg_, m_, 0.0);
    if (!S) return;
    simd([=, this, E = rule_.E, normalizer = rule_.normalizer] {
      for (int64_t l = 0; l < m_; ++l)
        dg_[l] = static_cast<double>(kernels::row_dot(S + l * E, R + l * E, E) +
                                     (normalizer ? S[m_ * E + l] * R[m_ * E + l] : T{0}));
    });
  }

 private:
  static constexpr T log_e = static_cast<T>(Base<T>::log_e);

  T* take(Scratch& scratch) const { return scratch.take<T>(block * m_); }
  int64_t end_of(int64_t p) const { return std::min(p + step, count_); }

  // e^(g_p + … + g_i) for the n queries from p on.
  void query_powers(int64_t p, int64_t n, T* powers) const {
    simd([=, this, g = g_.at(b_, first_ + p, h_)] {
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
    simd([=, this, g = g_.at(b_, first_, h_)] {
      std::fill_n(sum_, m_, T{0});
      for (int64_t j = p - 1; j >= 0; --j)
        for (int64_t l = 0; l < m_; ++l) {
          powers[j * m_ + l] = Base<T>::power(sum_[l]);
          sum_[l] += log_e * g[j * g_.token + l];
        }
    });
  }
  void weigh(const T* x, int64_t token, int64_t n, const T* powers, T* to) const {
    simd([=, this] {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t l = 0; l < m_; ++l) to[i * m_ + l] = powers[i * m_ + l] * x[i * token + l];
    });
  }
  // The keys before a cut and the queries of the step after it, multiplied by their powers.
  void load_cut(int64_t p) {
    key_powers(p, key_factors_);
    weigh(k_.at(b_, first_, h_), k_.token, p, key_factors_, keys_);
    query_powers(p, end_of(p) - p, query_factors_);
    weigh(q_.at(b_, first_ + p, h_), q_.token, end_of(p) - p, query_factors_, queries_);
  }

  // A, with zeros where j > i in the same step.
  void weights() {
    for (int64_t p = step; p < count_; p += step) {
      load_cut(p);
      const int64_t n = end_of(p) - p;
      pack_transposed(queries_, m_, n, step, m_, T{1}, transposed_);
      kernels::gemm_tile<T>(p, n, m_, {keys_, m_, 1}, transposed_, step, A_ + p, block, false);
    }
    simd([=, this, q = q_.at(b_, first_, h_), k = k_.at(b_, first_, h_)] {
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t p = i / step * step;
        std::copy_n(q + i * q_.token, m_, sum_);
        for (int64_t j = i; j >= p; --j) {
          A_[j * block + i] = kernels::row_dot(sum_, k + j * k_.token, m_);
          for (int64_t l = 0; l < m_; ++l) sum_[l] *= decays_[j * m_ + l];
        }
        for (int64_t j = i + 1; j < std::min(p + step, count_); ++j) A_[j * block + i] = 0;
      }
    });
  }

  // s_l = e^C_last,l s_l + Σ_i x_il [row_i, u_i]ᵀ; u undefined: ones
  void add_block(T* s, const T* x, const T* rows, int64_t token, const T* u) const {
    const int64_t E = rule_.E;
    simd([=, this, decay = from_before_ + (count_ - 1) * m_, z = s + m_ * E] {
      for (int64_t l = 0; l < m_; ++l)
        for (int64_t e = 0; e < E; ++e) s[l * E + e] *= decay[l];
      if (!rule_.normalizer) return;
      for (int64_t l = 0; l < m_; ++l) z[l] *= decay[l];
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l) z[l] += (u ? u[i] : T{1}) * x[i * m_ + l];
    });
    kernels::gemm_tile<T>(m_, E, count_, {x, 1, m_}, rows, token, s, E, true);
  }

  void load_delta(const Heads<const T>& dout) {
    const T* const dn = dout.at(b_, first_, h_);
    std::fill_n(delta_, block, T{0});
    if (rule_.normalizer)
      for (int64_t i = 0; i < count_; ++i) delta_[i] = dn[i * dout.token + rule_.E];
  }
  void value_gradients(const T* dn, int64_t token, const T* R, Gradient& dv) {
    const int64_t E = rule_.E;
    weights();
    weigh(k_.at(b_, first_, h_), k_.token, count_, to_last_, keys_);
    kernels::gemm_tile<T>(count_, E, m_, {keys_, m_, 1}, R, E, rows_, E, false);
    add_later(A_, dn, token, count_, E, rows_, E);
    const Heads<T> to(dv.to);
    put_rows(rows_, count_, E, to.at(b_, first_, h_), to.token, dv.beta != 0);
  }
  // to_i = powers_i (S row_i + u_i z); u undefined: ones
  void from_state(const T* rows, int64_t token, const T* S, const T* u, const T* powers, T* to) {
    const int64_t E = rule_.E;
    kernels::transpose_into(m_, E, S, E, T{1}, transposed_, m_, false);
    kernels::gemm_tile<T>(count_, m_, E, {rows, token, 1}, transposed_, m_, to, m_, false);
    simd([=, this, z = S + m_ * E, normalizer = rule_.normalizer] {
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l) {
          T& x = to[i * m_ + l];
          if (normalizer) x += (u ? u[i] : T{1}) * z[l];
          x *= powers[i * m_ + l];
        }
    });
  }
  void add_weighed(const T* powers, int64_t n, T* to) const {
    simd([=, this] {
      for (int64_t i = 0; i < n * m_; ++i) to[i] += powers[i] * rows_[i];
    });
  }
  void cut_gradients(int64_t p) {
    const int64_t n = end_of(p) - p;
    load_cut(p);
    kernels::gemm_tile<T>(n, m_, p, {dA_ + p, 1, block}, keys_, m_, rows_, m_, false);
    add_weighed(query_factors_, n, dq_ + p * m_);
    kernels::gemm_tile<T>(p, m_, n, {dA_ + p, block, 1}, queries_, m_, rows_, m_, false);
    add_weighed(key_factors_, p, dk_);
  }
  void step_gradients(int64_t p) {
    simd([=, this, q = q_.at(b_, first_, h_), k = k_.at(b_, first_, h_)] {
      for (int64_t i = p; i < end_of(p); ++i) {
        std::fill_n(sum_, m_, T{1});
        for (int64_t j = i; j >= p; --j) {
          const T* const key = k + j * k_.token;
          const T* const query = q + i * q_.token;
          const T dA = dA_[j * block + i];
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l) {
            dq_[i * m_ + l] += dA * sum_[l] * key[l];
            dk_[j * m_ + l] += dA * sum_[l] * query[l];
            sum_[l] *= decays_[j * m_ + l];
          }
        }
      }
    });
  }
  void decay_gradients(Gradient& dg) {
    const Heads<T> to(dg.to);
    simd([=, this, p = to.at(b_, first_, h_), q = q_.at(b_, first_, h_), k = k_.at(b_, first_, h_),
          add = dg.beta != 0] {
      for (int64_t i = count_ - 1; i >= 0; --i)
#pragma GCC ivdep
        for (int64_t l = 0; l < m_; ++l) {
          T& x = p[i * to.token + l];
          dg_[l] += static_cast<double>(q[i * q_.token + l] * dq_[i * m_ + l] -
                                        k[i * k_.token + l] * dk_[i * m_ + l]);
          x = static_cast<T>(dg_[l]) + (add ? x : T{0});
        }
    });
  }
  void put(const T* rows, Gradient& dx) const {
    const Heads<T> to(dx.to);
    put_rows(rows, count_, m_, to.at(b_, first_, h_), to.token, dx.beta != 0);
  }

  const ScanRule& rule_;
  const Heads<const T> q_, k_, v_, g_;
  const int64_t m_;
  T *const decays_, *const from_before_, *const to_last_, *const sum_;
  double* const total_;
  T *const key_factors_, *const query_factors_, *const keys_, *const queries_, *const transposed_;
  T *const A_, *const delta_;
  T *dA_ = nullptr, *dn_transposed_ = nullptr, *rows_ = nullptr, *dq_ = nullptr, *dk_ = nullptr,
    *mask_ = nullptr;
  double* dg_ = nullptr;
  int64_t b_ = 0, h_ = 0, first_ = 0, count_ = 0;
};

}  // namespace longhand::attention::tile
