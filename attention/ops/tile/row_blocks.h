// Blocks of a scan whose features are q and k themselves, rows in memory: the formulas of
// head_blocks.h, with decays per head or per channel l,
//
//   A_ji = Σ_l q_il k_jl e^(C_il - C_jl)
//
// How these stay at most 1 is explained in head_pairs.h and channel_pairs.h.
#pragma once

#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// Processes the blocks of one head, one at a time, with the interface of HeadBlocks. Pairs are
/// HeadPairs or ChannelPairs.
template <class T, class Pairs>
class RowBlocks {
 public:
  RowBlocks(const ScanRule& rule, const ScanTensors& x, int64_t, bool gradients, Scratch& scratch)
      : rule_(rule),
        x_(x),
        q_(x.q),
        k_(x.k),
        v_(x.v),
        m_(rule.m),
        ld_(rule.lanes()),
        pairs_(rule.decays && !rule.channels ? x.log_decay.unsqueeze(3) : x.log_decay, m_, ld_,
               scratch),
        sums_(scratch.take<T>(m_)),
        weighed_(scratch.take<T>(ld_ * m_)),
        transposed_(scratch.take<T>(m_ * rule.E)),
        own_(scratch.take<T>(ld_ * ld_)),
        delta_(scratch.take<T>(ld_)) {
    if (!gradients) return;
    dA_ = scratch.take<T>(ld_ * ld_);
    dn_transposed_ = scratch.take<T>(ld_ * rule.E);
    scratch.take_each(ld_ * m_, dq_, dk_);
    dg_ = scratch.take<double>(m_);
  }

  /// Elements that a block keeps for the gradients: A.
  static int64_t kept_size(const ScanRule& rule) { return rule.lanes() * rule.lanes(); }

  void start(int64_t b, int64_t h) {
    b_ = b, h_ = h;
    pairs_.start();
  }
  void load_keys(int64_t, int64_t block_, T, bool) { use(block_, 0); }
  void load_queries(int64_t) {}
  void put_log_scales(int64_t, Tensor&) const {}  // there are none without exponentials
  T scale_before(int64_t) const { return 0; }

  /// Computes the decays of a block.
  void use(int64_t block_, T) {
    first_ = rule_.first(block_), count_ = rule_.count(block_);
    pairs_.use(b_, h_, first_, count_);
  }
  /// Adds the log decays of a block to `total`, as exponents of Base.
  void add_log_decay(int64_t block_, T* total) const {
    pairs_.add_log_decay(b_, h_, rule_.first(block_), rule_.count(block_), total);
  }

  void attend(int64_t, int64_t block_, const T* S, T* to, int64_t token) {
    const int64_t E = rule_.E;
    weights(block_);
    if (S) {
      pairs_.from_before(queries(), q_.token, T{1}, weighed_);
      kernels::gemm_tile<T>(count_, E, m_, {weighed_, m_, 1}, S, E, to, token, false);
    }
    sum_earlier(A_, ld_, v_.at(b_, first_, h_), v_.token, count_, E, to, token, S != nullptr);
    if (!rule_.normalizer) return;
    simd([=, this, den = delta_, lanes = whole_lanes(count_)] {
      std::fill_n(den, lanes, T{0});
      for (int64_t j = 0; j < count_; ++j)
        for (int64_t i = j / step * step; i < lanes; ++i) den[i] += A_[j * ld_ + i];
      for (int64_t i = 0; i < count_; ++i)
        to[i * token + E] =
            den[i] + (S ? kernels::row_dot(weighed_ + i * m_, S + m_ * E, m_) : T{0});
    });
  }

  void advance(int64_t, int64_t, T* S) {
    pairs_.to_last(keys(), k_.token, weighed_);
    add_block(S, weighed_, v_.at(b_, first_, h_), v_.token, nullptr);
  }
  void retreat(int64_t, const Heads<const T>& dout, T* R) {
    load_delta(dout);
    pairs_.from_before(queries(), q_.token, T{1}, weighed_);
    add_block(R, weighed_, dout.at(b_, first_, h_), dout.token, delta_);
  }

  void gradients(int64_t, int64_t block_, const Heads<const T>& dout, const T* S, T* R, bool later,
                 ScanGradients& to) {
    if (S) {
      load_delta(dout);
      from_state(dout.at(b_, first_, h_), dout.token, S, delta_, dq_);
      pairs_.from_before(dq_, m_, T{1}, dq_);
    }
    pair_gradients(block_, dout, S != nullptr, R, later, to);
    if (S) retreat(0, dout, R);
    if (to.log_decay.to.defined()) end_decay(S, R);
  }
  /// The gradients through pairs and through the state after the block. With `reads`, those of
  /// queries are added to the contribution of earlier states, in query_gradients().
  void pair_gradients(int64_t block_, const Heads<const T>& dout, bool reads, const T* R,
                      bool later, ScanGradients& to) {
    const int64_t E = rule_.E;
    const T *const dn = dout.at(b_, first_, h_), *const values = v_.at(b_, first_, h_);
    load_delta(dout);
    if (to.v.to.defined()) {
      weights(block_);
      value_gradients(dn, dout.token, later ? R : nullptr, to.v);
    }
    pack_transposed(dn, dout.token, count_, E, T{1}, dn_transposed_);
    pair_weights<T>(count_, E, {values, v_.token, 1}, dn_transposed_, delta_, pairs_.within(), dA_,
                    ld_);
    if (later) {
      from_state(values, v_.token, R, nullptr, dk_);
      pairs_.to_last(dk_, m_, dk_);
    }
    pairs_.gradients(dA_, queries(), q_.token, keys(), k_.token, dq_, reads, dk_, later);
    if (to.log_decay.to.defined()) decay_gradients(to.log_decay);
    if (to.q.to.defined()) put(dq_, to.q);
    if (to.k.to.defined()) put(dk_, to.k);
  }
  Pairs& pairs() { return pairs_; }
  T* query_gradients() { return dq_; }
  /// Sets dg at the end of a block.
  void end_decay(double dg) {
    std::fill_n(dg_, m_, 0.0);
    dg_[0] = dg;
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
  const T* queries() const { return q_.at(b_, first_, h_); }
  const T* keys() const { return k_.at(b_, first_, h_); }
  void weights(int64_t block_) {
    T* const kept = x_.template kept_of<T>(b_ * rule_.H + h_, block_);
    A_ = kept ? kept : own_;
    if (!x_.has_kept) pairs_.weights(queries(), q_.token, T{1}, keys(), k_.token, false, A_);
  }

  // s_l = e^C_last,l s_l + Σ_i x_il [row_i, u_i]ᵀ; u undefined: ones
  void add_block(T* s, const T* x, const T* rows, int64_t token, const T* u) const {
    const int64_t E = rule_.E;
    pairs_.decay(s, E);
    simd([=, this, z = s + m_ * E] {
      if (!rule_.normalizer) return;
      std::fill_n(sums_, m_, T{0});
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l) sums_[l] += (u ? u[i] : T{1}) * x[i * m_ + l];
      for (int64_t l = 0; l < m_; ++l) z[l] = pairs_.whole(l) * z[l] + sums_[l];
    });
    kernels::gemm_tile<T>(m_, E, count_, {x, 1, m_}, rows, token, s, E, true);
  }

  void load_delta(const Heads<const T>& dout) {
    const T* const dn = dout.at(b_, first_, h_);
    std::fill_n(delta_, ld_, T{0});
    if (rule_.normalizer)
      for (int64_t i = 0; i < count_; ++i) delta_[i] = dn[i * dout.token + rule_.E];
  }
  void value_gradients(const T* dn, int64_t token, const T* R, Gradient& dv) {
    const int64_t E = rule_.E;
    const Heads<T> to(dv.to);
    T* const rows = to.at(b_, first_, h_);
    bool add = dv.beta != 0;
    if (R) {
      pairs_.to_last(keys(), k_.token, weighed_);
      kernels::gemm_tile<T>(count_, E, m_, {weighed_, m_, 1}, R, E, rows, to.token, add);
      add = true;
    }
    sum_later(A_, ld_, dn, token, count_, E, rows, to.token, add);
  }
  // to_i = S row_i + u_i z; u undefined: ones
  void from_state(const T* rows, int64_t token, const T* S, const T* u, T* to) {
    const int64_t E = rule_.E;
    kernels::transpose_into(m_, E, S, E, T{1}, transposed_, m_, false);
    kernels::gemm_tile<T>(count_, m_, E, {rows, token, 1}, transposed_, m_, to, m_, false);
    if (!rule_.normalizer) return;
    simd([=, this, z = S + m_ * E] {
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t l = 0; l < m_; ++l) to[i * m_ + l] += (u ? u[i] : T{1}) * z[l];
    });
  }
  void decay_gradients(Gradient& dg) {
    const auto change = [=, this, q = queries(), k = keys()](int64_t i, T* row) {
      for (int64_t l = 0; l < m_; ++l)
        row[l] = q[i * q_.token + l] * dq_[i * m_ + l] - k[i * k_.token + l] * dk_[i * m_ + l];
    };
    Gradient rows{rule_.channels ? dg.to : dg.to.unsqueeze(3), dg.beta};
    pairs_.decay_gradients(dg_, change, b_, h_, first_, rows);
  }
  void put(const T* rows, Gradient& dx) const {
    const Heads<T> to(dx.to);
    put_rows(rows, count_, m_, to.at(b_, first_, h_), to.token, dx.beta != 0);
  }

  const ScanRule& rule_;
  ScanTensors x_;
  const Heads<const T> q_, k_, v_;
  const int64_t m_, ld_;  // ld: row length of A
  Pairs pairs_;
  T *const sums_, *const weighed_, *const transposed_, *const own_, *const delta_;
  T *A_ = nullptr, *dA_ = nullptr, *dn_transposed_ = nullptr, *dq_ = nullptr, *dk_ = nullptr;
  double* dg_ = nullptr;
  int64_t b_ = 0, h_ = 0, first_ = 0, count_ = 0;
};

}  // namespace longhand::attention::tile
