// Blocks of a delta rule. With the decays e^(C_i - C_j) of head_pairs.h, the state S before a block
// of n tokens, and x = q or x = -r,
//
//   A^x_ji = Σ_l x_il k_jl e^(C_il - C_jl),  j <= i for q, j < i for -r
//   e_i = v_i - (e^C_i r_i)ᵀ S + Σ_(j<i) A^r_ji w_j,   w_i = β_i e_i        solve()
//   out_i = (e^C_i q_i)ᵀ S + Σ_(j<=i) A^q_ji w_j                            attend()
//   S' = e^C_n S + Σ_j e^(C_n - C_j) k_j w_jᵀ                               advance()
//
// e_i is the error of predicting v_i from r_i. The equations of a block are triangular:
// (I + L) e = v - X S with L_ij = -A^r_ji β_j and rows e^C_i r_i of X, the UT transform of Yang et
// al. 2024 (arXiv 2406.06484, eq. 10). They are solved by forward substitution in steps of 16
// tokens. For the gradients, with R and d_i the gradients of S' and of e_i on the right-hand side,
//
//   y_j = Σ_i A^q_ji dout_i + (e^(C_n - C_j) k_j)ᵀ R + Σ_(i>j) A^r_ji d_i,   d_j = β_j y_j
//   dv_i = d_i,   dβ_i = y_i·e_i
//   dA^q_ji = w_j·dout_i,   dA^r_ji = w_j·d_i
//
// by backward substitution; then q with dout_i and -r with d_i get their gradients in the same way,
// through A, S and S'.
//
// If values are written with separate keys u, e_i does not contain v_i. Each token then has two
// keys, k_i with value w_i and u_i with value v_i, which alternate in the sums over j. Two separate
// sums would lose accuracy: both are large if much of what is written is removed again. dv_i is the
// gradient y of the second value.
//
// If a token has several steps, i and j above are steps with one key each; q, out and dout have one
// row per token, which sees all steps. Decays belong to tokens and apply before the first step.
#pragma once

#include <vector>

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

struct DeltaRule : TokenBlocks {
  int64_t steps = 1;  // per token; N, `tokens` and `count` refer to steps
  int64_t state_size() const { return m * E; }
};

/// Operands (B, N, H, .); beta has one element per head, log_decay one or m.
using DeltaTensors = DeltaOperands<Tensor>;
/// Destinations of the gradients. If there is no read, its gradient is part of that of k.
using DeltaGradients = DeltaOperands<Gradient>;

/// Processes the blocks of one head, one at a time; holds the solutions of up to `slots` blocks.
template <class T, class Pairs>
class DeltaBlocks {
 public:
  DeltaBlocks(const DeltaRule& rule, const DeltaTensors& x, int64_t slots, bool gradients,
              Scratch& scratch)
      : rule_(rule),
        q_(x.q),
        k_(x.k),
        v_(x.v),
        r_(x.read.defined() ? x.read : x.k),
        own_read_(x.read.defined()),
        of_token_(x.write.defined() ? 2 : 1),
        m_(rule.m),
        E_(rule.E),
        ld_(whole_lanes(rule.tokens)),
        keys_of_query_(rule.steps * of_token_),
        ld_query_(whole_lanes(rule.tokens / rule.steps)),
        pairs_(x.log_decay, rule.m, ld_, scratch, of_token_, rule.steps),
        weighed_(scratch.take<T>(of_token_ * ld_ * m_)),
        beta_(scratch.take<T>(ld_)),
        A_(scratch.take<T>(of_token_ * ld_ * ld_)),
        wide_(scratch.take<double>(m_ * E_)),
        factors_(scratch.take<double>(m_)) {
    if (x.beta.defined()) betas_.emplace(x.beta);
    if (rule.steps > 1)
      query_pairs_.emplace(x.log_decay, rule.m, ld_query_, scratch, keys_of_query_);
    if (x.write.defined()) {
      u_.emplace(x.write);
      both_ = scratch.take<T>(2 * ld_ * m_);
    }
    for (int64_t i = 0; i < slots; ++i)
      solutions_.push_back({scratch.take<T>(of_token_ * ld_ * ld_), scratch.take<T>(ld_ * E_),
                            scratch.take<T>(of_token_ * ld_ * E_)});
    if (!gradients) return;
    zeros_ = scratch.take<T>(ld_);
    dA_ = scratch.take<T>(of_token_ * ld_ * ld_);
    y_ = scratch.take<T>(of_token_ * ld_ * E_);
    scratch.take_each(ld_ * E_, d_, rows_transposed_);
    state_transposed_ = scratch.take<T>(m_ * E_);
    scratch.take_each(ld_ * m_, dq_, dr_);
    dk_ = scratch.take<T>(of_token_ * ld_ * m_);
    end_ = scratch.take<double>(m_);
  }

  void start(int64_t b, int64_t h) {
    b_ = b, h_ = h;
    pairs_.start();
    if (query_pairs_) query_pairs_->start();
    if (zeros_) std::fill_n(zeros_, ld_, T{0});
  }

  /// Elements of a block computed for the results and kept for the gradients: A^r, A^q and e.
  static int64_t kept_size(const DeltaRule& rule, bool write) {
    const int64_t ld = whole_lanes(rule.tokens);
    return (write ? 4 : 2) * ld * ld + ld * rule.E;
  }
  /// Keeps these elements of slot 0 in this memory; `done`: they are already there.
  void keep_in(T* memory, bool done) {
    Solution& x = solutions_[0];
    x.A = memory;
    A_ = x.A + of_token_ * ld_ * ld_;
    x.e = A_ + of_token_ * ld_ * ld_;
    done_ = done;
  }

  /// Selects a block.
  void use(int64_t block_) {
    first_ = rule_.first(block_), count_ = rule_.count(block_);
    first_query_ = first_ / rule_.steps, queries_ = count_ / rule_.steps;
    pairs_.use(b_, h_, first_query_, count_);
    if (query_pairs_) query_pairs_->use(b_, h_, first_query_, queries_);
    if (betas_) {
      const T* const beta = betas_->at(b_, first_, h_);
      for (int64_t i = 0; i < count_; ++i) beta_[i] = beta[i * betas_->token];
    } else {
      std::fill_n(beta_, count_, T{1});
    }
    keys_ = k_.at(b_, first_, h_), key_token_ = k_.token;
    if (!u_) return;
    copy_rows(keys_, key_token_, m_, both_, 2 * m_);
    copy_rows(u_->at(b_, first_, h_), u_->token, m_, both_ + m_, 2 * m_);
    keys_ = both_, key_token_ = m_;
  }

  /// Computes w and e of the selected block from the state before it; null: no state.
  void solve(int64_t slot, const T* S) {
    const Solution& x = solutions_[slot];
    const T* const v = v_.at(b_, first_, h_);
    if (u_) copy_rows(v, v_.token, E_, x.w + E_, 2 * E_);
    if (done_) {
      simd([=, this] {
        for (int64_t i = 0; i < count_; ++i) weigh_error(x, i);
      });
      return;
    }
    pairs_.weights(reads(), r_.token, T{-1}, keys_, key_token_, true, x.A);
    const kernels::Addend<T> values = u_ ? kernels::Addend<T>{} : kernels::Addend<T>{v, v_.token};
    if (S) {
      pairs_.from_before(reads(), r_.token, T{-1}, weighed_);
      kernels::gemm_tile<T>(count_, E_, m_, {weighed_, m_, 1}, S, E_, x.e, E_, values);
    }
    for (int64_t p = 0; p < count_; p += step) {
      const int64_t end = std::min(p + step, count_);
      if (p > 0 || !S) {
        kernels::Addend<T> before = S ? kernels::Addend<T>{x.e, E_} : values;
        if (before.data) before.data += p * before.row;
        kernels::gemm_tile<T>(end - p, E_, of_token_ * p, {x.A + p, 1, ld_}, x.w, E_, x.e + p * E_,
                              E_, before);
      }
      simd([=, this, E = E_] {
        for (int64_t i = p; i < end; ++i) {
          T* const e = x.e + i * E;
          for (int64_t row = of_token_ * p; row < of_token_ * i; ++row) {
            const T a = x.A[row * ld_ + i];
            const T* const w = x.w + row * E;
#pragma GCC ivdep
            for (int64_t c = 0; c < E; ++c) e[c] += a * w[c];
          }
          weigh_error(x, i);
        }
      });
    }
  }

  /// Writes the results of the selected block to rows with stride `token`.
  void attend(int64_t slot, const T* S, T* to, int64_t token) {
    Pairs& pairs = of_queries();
    pairs.weights(queries(), q_.token, T{1}, keys_, key_token_, false, A_);
    if (S) {
      pairs.from_before(queries(), q_.token, T{1}, weighed_);
      kernels::gemm_tile<T>(queries_, E_, m_, {weighed_, m_, 1}, S, E_, to, token, false);
    }
    sum_earlier(A_, ld_query_, solutions_[slot].w, E_, queries_, E_, to, token, S != nullptr,
                keys_of_query_);
  }

  /// Sets the state that advance() starts from.
  void hold(const T* S) { std::copy_n(S, m_ * E_, wide_); }
  /// Writes the state after the selected block. Between blocks the state is in double precision,
  /// since it is a sum over all blocks, and their decays are multiplied.
  void advance(int64_t slot, T* S) {
    pairs_.to_last(keys_, key_token_, weighed_);
    kernels::gemm_tile<T>(m_, E_, of_token_ * count_, {weighed_, 1, m_}, solutions_[slot].w, E_, S,
                          E_, false);
    pairs_.whole(factors_);
    simd([=, this, E = E_] {
      for (int64_t l = 0; l < m_; ++l)
        for (int64_t e = 0; e < E; ++e) {
          double& x = wide_[l * E + e];
          x = factors_[l] * x + static_cast<double>(S[l * E + e]);
          S[l * E + e] = static_cast<T>(x);
        }
    });
  }

  /// Computes the gradients of the selected block from the state S before it (null: none) and the
  /// gradient R of the state after it (zeros unless `later`). R becomes the gradient of S.
  void gradients(int64_t slot, const Heads<const T>& dout, const T* S, T* R, bool later,
                 DeltaGradients& to) {
    const Solution& x = solutions_[slot];
    const T *const q = queries(), *const r = reads(), *const dn = dout.at(b_, first_query_, h_);
    Pairs& of_q = of_queries();
    const int64_t keys = of_token_ * count_;
    if (!done_) of_q.weights(q, q_.token, T{1}, keys_, key_token_, false, A_);
    if (later) {
      pairs_.to_last(keys_, key_token_, weighed_);
      kernels::gemm_tile<T>(keys, E_, m_, {weighed_, m_, 1}, R, E_, y_, E_, false);
    }
    sum_later(A_, ld_query_, dn, dout.token, queries_, E_, y_, E_, later, keys_of_query_);
    solve_backward(x);
    if (to.v.to.defined()) {
      if (u_)
        put(y_ + E_, 2 * E_, first_, count_, E_, to.v);
      else
        put(d_, E_, first_, count_, E_, to.v);
    }
    if (to.beta.to.defined()) beta_gradients(x, to.beta);

    // Through S and S'.
    if (later) {
      kernels::transpose_into(m_, E_, R, E_, T{1}, state_transposed_, m_, false);
      kernels::gemm_tile<T>(keys, m_, E_, {x.w, E_, 1}, state_transposed_, m_, dk_, m_, false);
      pairs_.to_last(dk_, m_, dk_);
    }
    if (to.log_decay.to.defined()) end_decay(S, R, later);
    if (S) {
      kernels::transpose_into(m_, E_, S, E_, T{1}, state_transposed_, m_, false);
      kernels::gemm_tile<T>(queries_, m_, E_, {dn, dout.token, 1}, state_transposed_, m_, dq_, m_,
                            false);
      of_q.from_before(dq_, m_, T{1}, dq_);
      kernels::gemm_tile<T>(count_, m_, E_, {d_, E_, 1}, state_transposed_, m_, dr_, m_, false);
      pairs_.from_before(dr_, m_, T{-1}, dr_);
      pairs_.decay(R, E_);
      of_q.from_before(q, q_.token, T{1}, weighed_);
      kernels::gemm_tile<T>(m_, E_, queries_, {weighed_, 1, m_}, dn, dout.token, R, E_, true);
      pairs_.from_before(r, r_.token, T{-1}, weighed_);
      kernels::gemm_tile<T>(m_, E_, count_, {weighed_, 1, m_}, d_, E_, R, E_, true);
    }

    // Through pairs; dr is the gradient of r.
    pair_gradients(of_q, x.w, dn, dout.token, queries_, ld_query_, keys_of_query_, T{1});
    of_q.gradients(dA_, q, q_.token, keys_, key_token_, dq_, S != nullptr, dk_, later);
    pair_gradients(pairs_, x.w, d_, E_, count_, ld_, of_token_, T{-1});
    clear_diagonal(dA_, ld_, count_, of_token_);
    pairs_.gradients(dA_, r, r_.token, keys_, key_token_, dr_, S != nullptr, dk_, true);
    if (to.log_decay.to.defined()) {
      const auto change = [=, this](int64_t i, T* sum) {
        const int64_t u = i / rule_.steps;
        const T reads = i == (u + 1) * rule_.steps - 1 ? T{1} : T{0};  // whether q reads it
#pragma GCC ivdep
        for (int64_t l = 0; l < m_; ++l)
          sum[l] =
              reads * q[u * q_.token + l] * dq_[u * m_ + l] + r[i * r_.token + l] * dr_[i * m_ + l];
        for (int64_t row = of_token_ * i; row < of_token_ * (i + 1); ++row)
#pragma GCC ivdep
          for (int64_t l = 0; l < m_; ++l)
            sum[l] -= keys_[row * key_token_ + l] * dk_[row * m_ + l];
      };
      pairs_.decay_gradients(end_, change, b_, h_, first_query_, to.log_decay);
    }
    if (to.q.to.defined()) put(dq_, m_, first_query_, queries_, m_, to.q);
    if (own_read_) {
      if (to.read.to.defined()) put(dr_, m_, first_, count_, m_, to.read);
    } else {
      simd([=, this] {
        for (int64_t i = 0; i < count_; ++i)
          for (int64_t l = 0; l < m_; ++l) dk_[of_token_ * i * m_ + l] += dr_[i * m_ + l];
      });
    }
    if (to.k.to.defined()) put(dk_, of_token_ * m_, first_, count_, m_, to.k);
    if (to.write.to.defined()) put(dk_ + m_, of_token_ * m_, first_, count_, m_, to.write);
  }

 private:
  struct Solution {
    T *A, *e, *w;  // A^r; e (tokens, E); w (keys, E), with v if values have separate keys
  };

  // The pairs of queries with the keys of all steps.
  Pairs& of_queries() { return query_pairs_ ? *query_pairs_ : pairs_; }
  const T* queries() const { return q_.at(b_, first_query_, h_); }
  const T* reads() const { return r_.at(b_, first_, h_); }

  void copy_rows(const T* rows, int64_t token, int64_t n, T* to, int64_t to_token) const {
    for (int64_t i = 0; i < count_; ++i) std::copy_n(rows + i * token, n, to + i * to_token);
  }
  // w_i. Inside simd().
  void weigh_error(const Solution& x, int64_t i) const {
    for (int64_t c = 0; c < E_; ++c) x.w[of_token_ * i * E_ + c] = beta_[i] * x.e[i * E_ + c];
  }
  // d and y, from the first two terms of y.
  void solve_backward(const Solution& x) {
    for (int64_t p = (count_ - 1) / step * step; p >= 0; p -= step) {
      const int64_t end = std::min(p + step, count_);
      if (end < count_)
        kernels::gemm_tile<T>(of_token_ * (end - p), E_, count_ - end,
                              {x.A + of_token_ * p * ld_ + end, ld_, 1}, d_ + end * E_, E_,
                              y_ + of_token_ * p * E_, E_, true);
      simd([=, this, E = E_] {
        for (int64_t j = end - 1; j >= p; --j) {
          for (int64_t row = of_token_ * j; row < of_token_ * (j + 1); ++row) {
            T* const y = y_ + row * E;
            for (int64_t i = j + 1; i < end; ++i) {
              const T a = x.A[row * ld_ + i];
              const T* const d = d_ + i * E;
#pragma GCC ivdep
              for (int64_t c = 0; c < E; ++c) y[c] += a * d[c];
            }
          }
          for (int64_t c = 0; c < E; ++c) d_[j * E + c] = beta_[j] * y_[of_token_ * j * E + c];
        }
      });
    }
  }
  void beta_gradients(const Solution& x, Gradient& dbeta) {
    const Heads<T> to(dbeta.to);
    simd([=, this, p = to.at(b_, first_, h_), token = to.token, add = dbeta.beta != 0] {
      for (int64_t i = 0; i < count_; ++i) {
        const T sum = kernels::row_dot(y_ + of_token_ * i * E_, x.e + i * E_, E_);
        p[i * token] = sum + (add ? p[i * token] : T{0});
      }
    });
  }
  // dA_ji = factor w_j·row_i for every key, times the decays that A has in all channels.
  void pair_gradients(const Pairs& pairs, const T* w, const T* rows, int64_t token, int64_t count,
                      int64_t ld, int64_t keys, T factor) {
    pack_transposed(rows, token, count, E_, factor, rows_transposed_);
    pair_weights<T>(count, E_, {w, E_, 1}, rows_transposed_, zeros_, pairs.within(), dA_, ld, keys);
  }
  // The gradient of C_n from that of keys through the state: ⟨S', R⟩ per channel.
  void end_decay(const T* S, const T* R, bool later) {
    simd([=, this] {
      for (int64_t l = 0; l < m_; ++l)
        end_[l] =
            S ? static_cast<double>(pairs_.whole(l) * kernels::row_dot(S + l * E_, R + l * E_, E_))
              : 0;
      for (int64_t row = 0; later && row < of_token_ * count_; ++row)
        for (int64_t l = 0; l < m_; ++l)
          end_[l] += static_cast<double>(keys_[row * key_token_ + l] * dk_[row * m_ + l]);
    });
  }
  void put(const T* rows, int64_t row, int64_t first, int64_t count, int64_t n,
           Gradient& dx) const {
    const Heads<T> to(dx.to);
    simd([=, this, p = to.at(b_, first, h_), token = to.token, add = dx.beta != 0] {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t l = 0; l < n; ++l)
          p[i * token + l] = rows[i * row + l] + (add ? p[i * token + l] : T{0});
    });
  }

  const DeltaRule& rule_;
  const Heads<const T> q_, k_, v_, r_;
  std::optional<Heads<const T>> betas_, u_;
  const bool own_read_;
  const int64_t of_token_, m_, E_, ld_;     // of_token: keys per step; ld: row length of A^r
  const int64_t keys_of_query_, ld_query_;  // ld_query: row length of A^q
  Pairs pairs_;
  std::optional<Pairs> query_pairs_;  // if tokens have several steps
  T *const weighed_, *const beta_;
  T* A_;                                 // A^q
  bool done_ = false;                    // A_ and a solution except w are kept
  double *const wide_, *const factors_;  // the state (m, E), e^C_n (m)
  std::vector<Solution> solutions_;
  T *zeros_ = nullptr, *dA_ = nullptr, *y_ = nullptr, *d_ = nullptr, *rows_transposed_ = nullptr,
    *state_transposed_ = nullptr, *dq_ = nullptr, *dr_ = nullptr, *dk_ = nullptr;
  double* end_ = nullptr;
  T* both_ = nullptr;        // k and u alternating
  const T* keys_ = nullptr;  // all keys of the block, rows with stride key_token
  int64_t key_token_ = 0, b_ = 0, h_ = 0, first_ = 0, count_ = 0, first_query_ = 0, queries_ = 0;
};

}  // namespace longhand::attention::tile
