// Blocks of a scan of features whose state does not decay, or decays by one factor per token.
//
// The decay of token i of a block is e^{s_i} with s_i = g_i, or, with exponentials, s_i = g_i +
// c_(i-1) - c_i: the factor of the state, which is relative to e^c. With C_i = Σ_(t<=i) s_t <= 0 in
// the block, and the state S, z before it,
//
//   A_ji = φ(q_i)·φ(k_j) e^(C_i - C_j),  j <= i
//   out_i = Σ_j A_ji v_j + e^C_i Sᵀ φ(q_i)
//   S' = e^C_last S + Σ_j e^(C_last - C_j) φ(k_j) v_jᵀ          advance()
//
// and for the gradients, given dn_i and δ_i of out_i, and R, r, the gradients of S', z'
//
//   dA_ji = (v_j·dn_i + δ_i) e^(C_i - C_j)
//   dφ(q_i) = Σ_j dA_ji φ(k_j) + e^C_i (S dn_i + δ_i z)
//   dφ(k_j) = Σ_i dA_ji φ(q_i) + e^(C_last - C_j) (R v_j + r)
//   dv_j = Σ_i A_ji dn_i + e^(C_last - C_j) Rᵀ φ(k_j)
//   R' = e^C_last R + Σ_i e^C_i φ(q_i) dn_iᵀ                     retreat()
//   dg_i = dg_(i+1) + φ(q_i)·dφ(q_i) - φ(k_i)·dφ(k_i),   dg_(last+1) = ⟨S', R⟩ + ⟨z', r⟩
//
// where z is treated as a column of S, and δ as a column of dn.
#pragma once

#include <vector>

#include "longhand/attention/ops/tile/block_decay.h"
#include "longhand/attention/ops/tile/features.h"
#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// Processes the blocks of one head, one at a time; holds features of up to `slots` blocks of keys.
template <class T>
class HeadBlocks {
 public:
  HeadBlocks(const ScanRule& rule, const ScanTensors& x, int64_t slots, bool gradients,
             Scratch& scratch)
      : rule_(rule),
        x_(x),
        q_(rule.heads<const T>(x.q)),
        k_(rule.heads<const T>(x.k)),
        v_(rule.heads<const T>(x.v)),
        ld_(rule.lanes()),
        queries_(rule.features, rule.m, scratch, ld_),
        decay_(ld_, scratch),
        steps_(scratch.take<double>(ld_)),
        c_(scratch.take<T>(ld_)),
        top_(scratch.take<T>(ld_)),
        delta_(scratch.take<T>(ld_)),
        rows_(scratch.take<T>(ld_ * rule.E)),
        A_(scratch.take<T>(ld_ * ld_)),
        zeros_(scratch.take<T>(std::max(ld_, rule.m))) {
    for (int64_t i = 0; i < slots; ++i) keys_.emplace_back(rule.features, rule.m, scratch, ld_);
    if (!gradients) return;
    df_ = scratch.take<T>(rule.m * ld_);
    scratch.take_each(ld_ * ld_, dA_, dA_transposed_);
    scratch.take_each(ld_ * rule.E, dn_transposed_, v_transposed_);
    dG_ = scratch.take<T>(ld_);
  }

  /// Elements that a block keeps for the gradients: the features, if they are expensive.
  static int64_t kept_size(const ScanRule& rule) {
    return rule.features.projection.defined() ? 2 * rule.m * rule.lanes() : 0;
  }

  void start(int64_t b, int64_t h) {
    b_ = b, h_ = h;
    scale_ = x_.scales<T>(rule_, b * rule_.H + h);
    decay_.clear();
    std::fill_n(zeros_, std::max(ld_, rule_.m), T{0});
  }

  /// Computes the features of the keys of a block, and its decays. `before` is the scale before the
  /// block; with find_scale, first computes the scales of the block.
  void load_keys(int64_t slot, int64_t block_, T before, bool find_scale) {
    FeatureTile<T>& f = keys_[slot];
    const int64_t first = rule_.first(block_), count = rule_.count(block_);
    f.start(k_, b_, h_, first, count, true, kept_features(block_, 0), x_.has_kept);
    if (x_.has_kept) return use(block_, before);
    f.compute(0, rule_.m);
    if (rule_.features.exponentials && find_scale) {
      f.largest(top_);
      for (int64_t j = 0; j < count; ++j) {
        const T last = j ? scale_[first + j - 1] : before;
        scale_[first + j] = std::max(last + static_cast<T>(log_decay(first + j)), top_[j]);
      }
    }
    use(block_, before);
    if (!rule_.features.exponentials) return;
    std::copy_n(scale_ + first, count, c_);
    std::fill(c_ + count, c_ + ld_, scale_[first + count - 1]);
    f.exponentiate(c_);
  }
  /// Computes only the decays of a block.
  void use(int64_t block_, T before) {
    const int64_t first = rule_.first(block_), count = rule_.count(block_);
    if (!scale_ && !rule_.decays) return;
    for (int64_t i = 0; i < count; ++i) {
      steps_[i] = log_decay(first + i);
      if (scale_)
        steps_[i] += static_cast<double>(i ? scale_[first + i - 1] : before) - scale_[first + i];
    }
    decay_.set(steps_, count);
  }
  void load_queries(int64_t block_) {
    queries_.start(q_, b_, h_, rule_.first(block_), rule_.count(block_), rule_.query_norm,
                   kept_features(block_, 1), x_.has_kept);
    if (x_.has_kept) return;
    queries_.compute(0, rule_.m);
    if (!rule_.features.exponentials) return;
    queries_.largest(top_);
    queries_.exponentiate(top_);
  }
  /// Writes the log scales of `out` for the loaded block to (B, H, N).
  void put_log_scales(int64_t block_, Tensor& to) const {
    const Strides& s = to.strides();
    const int64_t first = rule_.first(block_);
    T* const at = to.data<T>() + b_ * s[0] + h_ * s[1];
    for (int64_t i = 0; i < rule_.count(block_); ++i)
      at[rule_.token(first + i) * s[2]] =
          (scale_[first + i] + top_[i]) / static_cast<T>(Base<T>::log_e);
  }
  /// The scale before a block, if the preceding block has been loaded.
  T scale_before(int64_t block_) const {
    if (!scale_) return 0;
    return block_ ? scale_[rule_.first(block_) - 1] : x_.scale_at_start<T>(b_ * rule_.H + h_);
  }
  /// Adds the log decay of a block to `total`, as an exponent of Base.
  void add_log_decay(int64_t block_, T* total) const {
    double sum = 0;
    for (int64_t i = 0; i < rule_.count(block_); ++i) sum += log_decay(rule_.first(block_) + i);
    *total += static_cast<T>(sum);
  }

  /// Computes `out` of the loaded block from the state before it; null: no state.
  void attend(int64_t slot, int64_t block_, const T* S, T* to, int64_t token) {
    FeatureTile<T>&f = keys_[slot], &g = queries_;
    const int64_t m = rule_.m, E = rule_.E, count = f.count(), lanes = f.lanes();
    pair_weights<T>(count, m, {f.features(), 1, lanes}, g.features(), zeros_, decay_.within(), A_,
                    ld_);
    if (S) kernels::gemm_tile<T>(count, E, m, {g.features(), 1, lanes}, S, E, to, token, false);
    simd([=, normalizer = rule_.normalizer, den = delta_, A = A_, pg = g.features(), ld = ld_,
          weight = decay_.from_before()] {
      if (S)
        for (int64_t i = 0; i < count; ++i)
          for (int64_t e = 0; e < E; ++e) to[i * token + e] *= weight[i];
      if (!normalizer) return;
      std::fill_n(den, lanes, T{0});
      if (S) {
        const T* const z = S + m * E;
        for (int64_t l = 0; l < m; ++l)
          for (int64_t i = 0; i < lanes; ++i) den[i] += pg[l * lanes + i] * z[l];
        for (int64_t i = 0; i < lanes; ++i) den[i] *= weight[i];
      }
      for (int64_t j = 0; j < count; ++j)
        for (int64_t i = j / step * step; i < lanes; ++i) den[i] += A[j * ld + i];
      for (int64_t i = 0; i < count; ++i) to[i * token + E] = den[i];
    });
    sum_earlier(A_, ld_, v_.at(b_, rule_.first(block_), h_), v_.token, count, E, to, token,
                S != nullptr);
  }

  /// Replaces the state before the loaded block by the state after it.
  void advance(int64_t slot, int64_t block_, T* S) {
    weigh(v_.at(b_, rule_.first(block_), h_), v_.token, decay_.to_last(), rule_.count(block_),
          rows_);
    add_block(S, keys_[slot], decay_.to_last());
  }
  /// Replaces the gradient of the state after the loaded block by that of the state before it.
  void retreat(int64_t block_, const Heads<const T>& dout, T* R) {
    load_dout(block_, dout);
    retreat_loaded(R);
  }

  /// Computes the gradients of a block whose keys and queries are loaded, from the state S before
  /// it (null: none) and the gradient R of the state after it (zeros unless `later`). R becomes the
  /// gradient of S.
  void gradients(int64_t slot, int64_t block_, const Heads<const T>& dout, const T* S, T* R,
                 bool later, ScanGradients& to) {
    FeatureTile<T>& f = keys_[slot];
    const int64_t first = rule_.first(block_), count = f.count(), E = rule_.E;
    const T *const dn = dout.at(b_, first, h_), *const values = v_.at(b_, first, h_);
    pack_transposed(dn, dout.token, count, E, T{1}, dn_transposed_);
    std::fill_n(delta_, ld_, T{0});
    if (rule_.normalizer)
      for (int64_t i = 0; i < count; ++i) delta_[i] = dn[i * dout.token + E];
    pair_weights<T>(count, E, {values, v_.token, 1}, dn_transposed_, delta_, decay_.within(), dA_,
                    ld_);
    // Products in wide steps read some of the zeros.
    for (int64_t j = step; j < count; ++j) std::fill_n(dA_ + j * ld_, j / step * step, T{0});
    const bool decays = to.log_decay.to.defined();
    if (decays) std::fill_n(dG_, ld_, T{0});
    if (to.v.to.defined()) value_gradients(f, first, dn, dout.token, later ? R : nullptr, to.v);
    if (to.k.to.defined() || decays)
      key_gradients(f, first, values, later ? R : nullptr, decays, to.k);
    if (S) load_dout(block_, dout);
    if (to.q.to.defined() || decays) query_gradients(f, first, S, decays, to.q);
    if (S) retreat_loaded(R);
    if (!decays) return;
    decay_gradients(first, count, to.log_decay);
    end_decay(S, R);
  }
  /// Sets dg at the end of a block from the state there and its gradient, or to 0 if S is null.
  /// Called before the first block that is processed (in reverse order) and between blocks.
  void end_decay(const T* S, const T* R) {
    T sum = 0;
    if (S) simd([&, n = rule_.state_size()] { sum = kernels::row_dot(S, R, n); });
    dg_ = static_cast<double>(sum);
  }

 private:
  // Columns of a product with zeros below a diagonal: two vectors, where `step` is one.
  static constexpr int64_t wide_step = 2 * step;

  // 0 for keys, 1 for queries.
  T* kept_features(int64_t block_, int64_t which) {
    T* const kept = x_.kept_of<T>(b_ * rule_.H + h_, block_);
    return kept ? kept + which * rule_.m * ld_ : nullptr;
  }
  double log_decay(int64_t i) const {
    if (!rule_.decays) return 0;
    const Tensor& g = x_.log_decay;
    const Strides& s = g.strides();
    return Base<T>::log_e *
           static_cast<double>(g.data<T>()[b_ * s[0] + rule_.token(i) * s[1] + h_ * s[2]]);
  }

  // rows_i = weight_i from_i
  void weigh(const T* from, int64_t token, const T* weight, int64_t count, T* rows) const {
    simd([=, E = rule_.E] {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t e = 0; e < E; ++e) rows[i * E + e] = weight[i] * from[i * token + e];
    });
  }
  static void weigh_lanes(const T* weight, int64_t n, int64_t lanes, T* x) {
    simd([=] {
      for (int64_t l = 0; l < n; ++l)
        for (int64_t i = 0; i < lanes; ++i) x[l * lanes + i] *= weight[i];
    });
  }
  // s = e^C_last s + Σ_i f_i [rows_i, u_i]ᵀ
  void add_block(T* s, FeatureTile<T>& tile, const T* u) const {
    const int64_t m = rule_.m, E = rule_.E, lanes = tile.lanes();
    T* const f = tile.features();
    simd([=, n = rule_.state_size(), normalizer = rule_.normalizer, decay = decay_.whole()] {
      if (decay != 1)
        for (int64_t i = 0; i < n; ++i) s[i] *= decay;
      if (normalizer) add_sums_of_lanes(f, u, m, lanes, s + m * E);
    });
    kernels::gemm_tile<T>(m, E, tile.count(), {f, lanes, 1}, rows_, E, s, E, true);
  }

  // rows_ and delta_: e^C_i [dn_i, δ_i].
  void load_dout(int64_t block_, const Heads<const T>& dout) {
    const int64_t count = rule_.count(block_);
    const T *const dn = dout.at(b_, rule_.first(block_), h_), *const weight = decay_.from_before();
    weigh(dn, dout.token, weight, count, rows_);
    std::fill_n(delta_, ld_, T{0});
    if (rule_.normalizer)
      for (int64_t i = 0; i < count; ++i) delta_[i] = weight[i] * dn[i * dout.token + rule_.E];
  }
  void retreat_loaded(T* R) { add_block(R, queries_, delta_); }

  void value_gradients(FeatureTile<T>& f, int64_t first, const T* dn, int64_t token, const T* R,
                       Gradient& dv) {
    const int64_t m = rule_.m, E = rule_.E, count = f.count(), lanes = f.lanes();
    const Heads<T> to = rule_.heads<T>(dv.to);
    pair_weights<T>(count, m, {f.features(), 1, lanes}, queries_.features(), zeros_,
                    decay_.within(), A_, ld_);
    if (R) {
      kernels::gemm_tile<T>(count, E, m, {f.features(), 1, lanes}, R, E, rows_, E, false);
      weigh(rows_, E, decay_.to_last(), count, rows_);
    }
    sum_later(A_, ld_, dn, token, count, E, rows_, E, R != nullptr);
    put_rows(rows_, count, E, to.at(b_, first, h_), to.token, dv.beta != 0);
  }
  void key_gradients(FeatureTile<T>& f, int64_t first, const T* values, const T* R, bool decays,
                     Gradient& dk) {
    const int64_t m = rule_.m, E = rule_.E, count = f.count(), lanes = f.lanes();
    const T *const pg = queries_.features(), *const to_last = decay_.to_last();
    pack_transposed(dA_, ld_, count, count, T{1}, dA_transposed_);
    for (int64_t j = 0; j < count; j += wide_step)
      kernels::gemm_tile<T>(m, std::min(wide_step, lanes - j), count - j, {pg + j, lanes, 1},
                            dA_transposed_ + j * (lanes + 1), lanes, df_ + j, lanes, false);
    if (R) {
      pack_transposed(values, v_.token, count, E, T{1}, v_transposed_);
      weigh_lanes(to_last, E, lanes, v_transposed_);
      kernels::gemm_tile<T>(m, lanes, E, {R, E, 1}, v_transposed_, lanes, df_, lanes, true);
    }
    f.finish_gradient(df_, R && rule_.normalizer ? R + m * E : zeros_, to_last);
    if (decays) add_to_decay(f, T{-1});
    if (dk.to.defined()) f.input_gradient(df_, rule_.heads<T>(dk.to), b_, first, dk.beta != 0);
  }
  // Uses δ of load_dout().
  void query_gradients(FeatureTile<T>& f, int64_t first, const T* S, bool decays, Gradient& dq) {
    const int64_t m = rule_.m, E = rule_.E, count = f.count(), lanes = f.lanes();
    for (int64_t i = 0; i < count; i += wide_step)
      kernels::gemm_tile<T>(m, std::min(wide_step, lanes - i), std::min(i + wide_step, count),
                            {f.features(), lanes, 1}, dA_ + i, ld_, df_ + i, lanes, false);
    if (S) {
      weigh_lanes(decay_.from_before(), E, lanes, dn_transposed_);
      kernels::gemm_tile<T>(m, lanes, E, {S, E, 1}, dn_transposed_, lanes, df_, lanes, true);
    }
    queries_.finish_gradient(df_, S && rule_.normalizer ? S + m * E : zeros_, delta_);
    if (decays) add_to_decay(queries_, T{1});
    if (dq.to.defined())
      queries_.input_gradient(df_, rule_.heads<T>(dq.to), b_, first, dq.beta != 0);
  }
  // dG_i += sign φ_i·dφ_i. With exponentials, df already includes the factor φ.
  void add_to_decay(FeatureTile<T>& tile, T sign) {
    simd([=, m = rule_.m, lanes = tile.lanes(), all = tile.features(), df = df_, dG = dG_,
          exponentials = rule_.features.exponentials] {
      for (int64_t l = 0; l < m; ++l)
        for_lanes(lanes, [=, d = df + l * lanes, f = all + l * lanes](int64_t i) {
          dG[i] += sign * (exponentials ? d[i] : d[i] * f[i]);
        });
    });
  }
  void decay_gradients(int64_t first, int64_t count, Gradient& dg) {
    const Strides& s = dg.to.strides();
    for (int64_t i = count - 1; i >= 0; --i) {
      T& to = dg.to.data<T>()[b_ * s[0] + rule_.token(first + i) * s[1] + h_ * s[2]];
      dg_ += static_cast<double>(dG_[i]);
      to = static_cast<T>(dg_) + (dg.beta != 0 ? to : T{0});
    }
  }

  const ScanRule& rule_;
  ScanTensors x_;
  const Heads<const T> q_, k_, v_;
  const int64_t ld_;  // row length of A
  FeatureTile<T> queries_;
  std::vector<FeatureTile<T>> keys_;
  BlockDecay<T> decay_;
  double* const steps_;
  T *const c_, *const top_, *const delta_, *const rows_, *const A_, *const zeros_;
  T *df_ = nullptr, *dA_ = nullptr, *dA_transposed_ = nullptr, *dn_transposed_ = nullptr,
    *v_transposed_ = nullptr, *dG_ = nullptr;
  T* scale_ = nullptr;
  double dg_ = 0;
  int64_t b_ = 0, h_ = 0;
};

}  // namespace longhand::attention::tile
