// With features f_jl of keys and g_il of queries, and c_j that does not fall, for each head:
//
//   A_ji = g_i·f_j e^(c_j - c_i),  num_i = Σ_(j<=i) A_ji v_j,  den_i = Σ_(j<=i) A_ji
//
// A block of tokens meets those before it in their state, relative to `before`, c at the last:
//
//   S = Σ_j e^(c_j - before) f_j v_jᵀ (m, E),  z = Σ_j e^(c_j - before) f_j (m)
//   num_i = Σ_(j in the block, j<=i) A_ji v_j + e^(before - c_i) Sᵀ g_i,  den_i alike
//
// and for the gradients, of dn_i and δ_i, those after it, relative to `last`, c at its own last:
//
//   R = Σ_i e^(last - c_i) g_i dn_iᵀ (m, E),  r = Σ_i e^(last - c_i) δ_i g_i (m)
//   dA_ji = (v_j·dn_i + δ_i) e^(c_j - c_i),  j <= i in the block
//   dg_i = Σ_j dA_ji f_j + e^(before - c_i) (S dn_i + δ_i z)
//   df_j = Σ_i dA_ji g_i + e^(c_j - last) (R v_j + r),  dv_j = Σ_i A_ji dn_i + e^(c_j - last) Rᵀ
//   f_j
//
// Blocks go by in order for the results and in reverse for the gradients; no exponent is positive.
// Of states the first of each span of blocks is kept, the others of a span are computed again.
#include "longhand/attention/ops/scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "longhand/attention/ops/tile/features.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/attention/ops/tile/scratch.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;
using kernels::Strided;
using namespace tile;

static_assert(causal_chunk <= block);

constexpr int64_t span = 4;  // blocks

struct Rule {
  FeatureRule features;
  int64_t B, N, H, E, chunk;
  bool scaled;  // there is a c
  int64_t blocks, groups, blocks_of_group;

  Rule(const FeatureRule& f, const Shape& v, int64_t tokens_at_once, bool has_scale)
      : features(f),
        B(v[0]),
        N(v[1]),
        H(v[2]),
        E(v[3]),
        chunk(tokens_at_once),
        scaled(has_scale),
        blocks((N + chunk - 1) / chunk) {
    // Blocks are dealt out to so many groups, each a task, if there are few heads to work on at
    // once. What a group finds or leaves for others is then summed beforehand.
    constexpr int64_t tasks = 32, least = 12;
    groups =
        std::clamp<int64_t>((tasks + B * H - 1) / (B * H), 1, std::max<int64_t>(1, blocks / least));
    blocks_of_group = ((blocks + groups - 1) / groups + span - 1) / span * span;
    groups = (blocks + blocks_of_group - 1) / blocks_of_group;
  }
  int64_t first(int64_t block_) const { return block_ * chunk; }
  int64_t count(int64_t block_) const { return std::min(chunk, N - block_ * chunk); }
  int64_t state_size() const { return features.m * (E + 1); }
};

// Calls visit(b, h, head number, group, first block, end); one task each.
template <class F>
void for_groups(const Rule& rule, F visit) {
  parallel_for(rule.B * rule.H * rule.groups, 1, [&](int64_t from, int64_t to) {
    for (int64_t task = from; task < to; ++task) {
      const int64_t head = task / rule.groups, group = task % rule.groups;
      visit(head / rule.H, head % rule.H, head, group, group * rule.blocks_of_group,
            std::min(rule.blocks, (group + 1) * rule.blocks_of_group));
    }
  });
}

// What is kept of the result: c (B, H, N), as exponents of Base, and the states of each head before
// every so many blocks, (heads, ., m (E + 1)).
struct Kept {
  Tensor c, states;
  int64_t every;

  Kept(const Rule& rule, int64_t every_, DType dtype)
      : states(Tensor::empty(
            {rule.B * rule.H, (rule.blocks + every_ - 1) / every_, rule.state_size()}, dtype)),
        every(every_) {
    if (rule.scaled) c = Tensor::empty({rule.B, rule.H, rule.N}, dtype);
  }
  template <class T>
  T* state(int64_t head, int64_t block_) {
    return states.data<T>() + (head * states.size(1) + block_ / every) * states.size(2);
  }
  template <class T>
  T* scale(const Rule& rule, int64_t head) {
    return rule.scaled ? c.data<T>() + head * rule.N : nullptr;
  }
};

// The powers of c in a block; all are at most 1.
template <class T>
class Scales {
 public:
  explicit Scales(Scratch& scratch)
      : c_(scratch.take<T>(block)),
        from_before_(scratch.take<T>(block)),
        to_last_(scratch.take<T>(block)),
        mask_(scratch.take<T>(block * block)),
        within_(scratch.take<T>(block * block)) {
    std::fill_n(c_, block, T{0});
    std::fill_n(from_before_, block, T{1});
    std::fill_n(to_last_, block, T{1});
    for (int64_t j = 0; j < block; ++j)
      for (int64_t i = 0; i < block; ++i) mask_[j * block + i] = j <= i ? 1 : 0;
  }
  static constexpr int64_t elements = 3 * block + 2 * block * block;

  // For c of `count` tokens, and that before them; or for none.
  void set(const T* c, int64_t count, T before) {
    if (!c) return;
    std::copy_n(c, count, c_);
    const T last = c[count - 1];
    std::fill(c_ + count, c_ + block, last);
    steady_ = c[0] == last;
    simd([=, this] {
      for (int64_t i = 0; i < block; ++i) {
        from_before_[i] = Base<T>::power(before - c_[i]);
        to_last_[i] = Base<T>::power(c_[i] - last);
      }
      if (!steady_)
        for (int64_t j = 0; j < block; ++j)
          for (int64_t i = 0; i < block; ++i) {
            const T power = Base<T>::power(c_[j] - c_[i]);
            within_[j * block + i] = j <= i ? power : T{0};
          }
    });
  }

  const T* c() const { return c_; }
  const T* from_before() const { return from_before_; }          // e^(before - c_i)
  const T* to_last() const { return to_last_; }                  // e^(c_j - last)
  T decay() const { return from_before_[block - 1]; }            // e^(before - last)
  const T* within() const { return steady_ ? mask_ : within_; }  // e^(c_j - c_i) for j <= i, or 0

 private:
  T *const c_, *const from_before_, *const to_last_, *const mask_, *const within_;
  bool steady_ = true;
};

// s = decay s + Σ_i f_i [row_i, u_i]ᵀ: a state (m, E) and (m) with what a block adds to it.
template <class T>
void add_block(const Rule& rule, T* s, T decay, FeatureTile<T>& tile, const T* rows, const T* u) {
  const int64_t m = rule.features.m, E = rule.E, lanes = tile.lanes();
  T* const f = tile.features();
  simd([=] {
    if (decay != 1)
      for (int64_t i = 0; i < m * (E + 1); ++i) s[i] *= decay;
    add_sums_of_lanes(f, u, m, lanes, s + m * E);
  });
  gemm_tile<T>(m, E, tile.count(), {f, lanes, 1}, rows, E, s, E, true);
}

// s = factor s + factor_add x
template <class T>
void join(T* s, T factor, const T* x, T factor_x, int64_t n) {
  simd([=] {
    for (int64_t i = 0; i < n; ++i) s[i] = factor * s[i] + factor_x * x[i];
  });
}

// to_i = weight_i from_i, (count, E).
template <class T>
void weigh(const T* from, int64_t token, const T* weight, int64_t count, int64_t E, T* to) {
  simd([=] {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t e = 0; e < E; ++e) to[i * E + e] = weight[i] * from[i * token + e];
  });
}

template <class T>
void weigh_lanes(const T* weight, int64_t n, int64_t lanes, T* x) {
  simd([=] {
    for (int64_t l = 0; l < n; ++l)
      for (int64_t i = 0; i < lanes; ++i) x[l * lanes + i] *= weight[i];
  });
}

// Within a block, a matrix of weights (keys, block) has nothing below its diagonal: products with
// it go in steps of keys or queries, and leave out what is before or after them.
constexpr int64_t step = lane_multiple;

// A_ji = (Σ_l f_jl g_li + δ_i) within_ji for f (keys, n) and g (n, lanes).
template <class T>
void weights(int64_t count, int64_t lanes, int64_t n, Strided<T> f, const T* g, const T* delta,
             const T* within, T* A) {
  for (int64_t j = 0; j < count; j += step)
    gemm_tile<T>(std::min(step, count - j), lanes - j, n, {f.data + j * f.row, f.row, f.col}, g + j,
                 lanes, A + j * (block + 1), block, false);
  simd([=] {
    for (int64_t j = 0; j < count; ++j) {
      T* const a = A + j * block;
      const T* const w = within + j * block;
      const int64_t first = j / step * step;
      std::fill_n(a, first, T{0});
      for (int64_t i = first; i < lanes; ++i) a[i] = (a[i] + delta[i]) * w[i];
    }
  });
}

// A head's blocks, in one task.
template <class T>
struct Head {
  const Rule& rule;
  const Heads<const T> q, k, v;
  const int64_t b, h;
  T* const c;  // (N), or null

  // c before a block.
  T before(int64_t block_) const {
    if (!c) return 0;
    return block_ ? c[rule.first(block_) - 1] : -infinity<T>;
  }
  // The features of a block's queries.
  void queries(int64_t block_, T* top, FeatureTile<T>& g) const {
    g.start(q, b, h, rule.first(block_), rule.count(block_), false);
    g.compute(0, rule.features.m);
    if (!rule.features.exponentials) return;
    g.largest(top);
    g.exponentiate(top);
  }
  // Those of its keys, and the powers of c; with find_c, where features are exponentials, it is
  // found first, from that before.
  void keys(int64_t block_, T before, bool find_c, T* top, FeatureTile<T>& f,
            Scales<T>& scales) const {
    const int64_t first = rule.first(block_), count = rule.count(block_);
    f.start(k, b, h, first, count, true);
    f.compute(0, rule.features.m);
    if (rule.features.exponentials && find_c) {
      f.largest(top);
      for (int64_t j = 0; j < count; ++j)
        c[first + j] = std::max(j ? c[first + j - 1] : before, top[j]);
    }
    scales.set(c ? c + first : nullptr, count, before);
    if (rule.features.exponentials) f.exponentiate(scales.c());
  }
  void add_keys(int64_t block_, FeatureTile<T>& f, const Scales<T>& scales, T* rows, T* s) const {
    weigh(v.at(b, rule.first(block_), h), v.token, scales.to_last(), f.count(), rule.E, rows);
    add_block(rule, s, scales.decay(), f, rows, scales.to_last());
  }
};

// The state that each group of blocks meets, in `kept`, and the c before it, (heads, groups).
template <class T>
Tensor states_before(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v,
                     Kept& kept) {
  const int64_t n = rule.state_size();
  Tensor starts =
      Tensor::full({rule.B * rule.H, rule.groups}, rule.scaled ? -infinity<T> : 0, q.dtype());
  if (rule.groups > 1)
    for_groups(rule, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin,
                         int64_t end) {
      if (group == rule.groups - 1) return;
      Scratch scratch(static_cast<size_t>(FeatureTile<T>::elements(rule.features, rule.features.m) +
                                          Scales<T>::elements + block * (rule.E + 1)) *
                          sizeof(T) +
                      64 * 12);
      FeatureTile<T> f(rule.features, rule.features.m, scratch);
      Scales<T> scales(scratch);
      T *const rows = scratch.take<T>(block * rule.E), *const top = scratch.take<T>(block);
      const Head<T> x{rule, Heads<const T>(q),        Heads<const T>(k), Heads<const T>(v), b,
                      h,    kept.scale<T>(rule, head)};
      T* const s = kept.state<T>(head, end);
      std::fill_n(s, n, T{0});
      T before = rule.scaled ? -infinity<T> : 0;
      for (int64_t g = begin; g < end; ++g) {
        x.keys(g, before, true, top, f, scales);
        x.add_keys(g, f, scales, rows, s);
        if (rule.scaled) before = x.before(g + 1);
      }
    });
  parallel_for(rule.B * rule.H, 1, [&](int64_t from, int64_t to) {
    for (int64_t head = from; head < to; ++head) {
      std::fill_n(kept.state<T>(head, 0), n, T{0});
      T* const start = starts.data<T>() + head * rule.groups;
      for (int64_t group = 1; group < rule.groups; ++group) {
        const int64_t at = group * rule.blocks_of_group;
        T factor = 1, own_factor = 1;
        if (rule.scaled) {
          const T own = kept.scale<T>(rule, head)[rule.first(at) - 1];
          start[group] = std::max(start[group - 1], own);
          factor = Base<T>::power(start[group - 1] - start[group]);
          own_factor = Base<T>::power(own - start[group]);
        }
        join(kept.state<T>(head, at), own_factor, kept.state<T>(head, at - rule.blocks_of_group),
             factor, n);
      }
    }
  });
  return starts;
}

template <class T>
void causal_sums(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v, Kept& kept,
                 Tensor& out) {
  const int64_t m = rule.features.m, E = rule.E, n = rule.state_size();
  const Tensor starts = states_before<T>(rule, q, k, v, kept);
  const Heads<T> to(out);
  constexpr T none[block] = {};
  for_groups(rule, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin,
                       int64_t end) {
    Scratch scratch(
        static_cast<size_t>(2 * FeatureTile<T>::elements(rule.features, rule.features.m) +
                            Scales<T>::elements + n + block * (block + E + 2)) *
            sizeof(T) +
        64 * 16);
    FeatureTile<T> f(rule.features, rule.features.m, scratch),
        g(rule.features, rule.features.m, scratch);
    Scales<T> scales(scratch);
    T *const s = scratch.take<T>(n), *const A = scratch.take<T>(block * block),
             *const rows = scratch.take<T>(block * E), *const top = scratch.take<T>(block),
             *const den = scratch.take<T>(block);
    const Head<T> x{rule, Heads<const T>(q),        Heads<const T>(k), Heads<const T>(v), b,
                    h,    kept.scale<T>(rule, head)};
    T before = starts.data<T>()[head * rule.groups + group];
    std::copy_n(kept.state<T>(head, begin), n, s);
    for (int64_t block_ = begin; block_ < end; ++block_) {
      if (block_ > begin && block_ % kept.every == 0)
        std::copy_n(s, n, kept.state<T>(head, block_));
      const int64_t first = rule.first(block_);
      x.keys(block_, before, true, top, f, scales);
      x.queries(block_, top, g);
      const int64_t count = f.count(), lanes = f.lanes();
      weights<T>(count, lanes, m, {f.features(), 1, lanes}, g.features(), none, scales.within(), A);
      T* const num = to.at(b, first, h);
      gemm_tile<T>(count, E, m, {g.features(), 1, lanes}, s, E, num, to.token, false);
      simd([=, z = s + m * E, pg = g.features(), weight = scales.from_before()] {
        std::fill_n(den, lanes, T{0});
        for (int64_t l = 0; l < m; ++l)
          for (int64_t i = 0; i < lanes; ++i) den[i] += pg[l * lanes + i] * z[l];
        for (int64_t i = 0; i < lanes; ++i) den[i] *= weight[i];
        for (int64_t j = 0; j < count; ++j)
          for (int64_t i = 0; i < lanes; ++i) den[i] += A[j * block + i];
        for (int64_t i = 0; i < count; ++i) {
          for (int64_t e = 0; e < E; ++e) num[i * to.token + e] *= weight[i];
          num[i * to.token + E] = den[i];
        }
      });
      for (int64_t i = 0; i < count; i += step)
        gemm_tile<T>(std::min(step, count - i), E, std::min(i + step, count), {A + i, 1, block},
                     x.v.at(b, first, h), x.v.token, num + i * to.token, to.token, true);
      if (block_ + 1 == end) break;
      x.add_keys(block_, f, scales, rows, s);
      before = x.before(block_ + 1);
    }
  });
}

// The gradients' state R, r that each group meets behind it: (heads, groups, m (E + 1)).
template <class T>
Tensor states_after(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& dsums, Kept& kept) {
  const int64_t E = rule.E, n = rule.state_size();
  Tensor states = Tensor::empty({rule.B * rule.H, rule.groups, n}, q.dtype());
  const auto state = [&](int64_t head, int64_t group) {
    return states.data<T>() + (head * rule.groups + group) * n;
  };
  const Heads<const T> d(dsums);
  if (rule.groups > 1)
    for_groups(rule, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin,
                         int64_t end) {
      if (group == 0) return;
      Scratch scratch(static_cast<size_t>(FeatureTile<T>::elements(rule.features, rule.features.m) +
                                          Scales<T>::elements + block * (E + 2)) *
                          sizeof(T) +
                      64 * 12);
      FeatureTile<T> g(rule.features, rule.features.m, scratch);
      Scales<T> scales(scratch);
      T *const rows = scratch.take<T>(block * E), *const delta = scratch.take<T>(block),
               *const top = scratch.take<T>(block);
      const Head<T> x{rule, Heads<const T>(q),        Heads<const T>(k), Heads<const T>(v), b,
                      h,    kept.scale<T>(rule, head)};
      T* const r = state(head, group - 1);
      std::fill_n(r, n, T{0});
      for (int64_t block_ = end - 1; block_ >= begin; --block_) {
        const int64_t first = rule.first(block_), count = rule.count(block_);
        scales.set(x.c ? x.c + first : nullptr, count, x.before(block_));
        x.queries(block_, top, g);
        const T *const from = d.at(b, first, h), *const weight = scales.from_before();
        weigh(from, d.token, weight, count, E, rows);
        std::fill_n(delta, block, T{0});
        for (int64_t i = 0; i < count; ++i) delta[i] = weight[i] * from[i * d.token + E];
        add_block(rule, r, scales.decay(), g, rows, delta);
      }
    });
  parallel_for(rule.B * rule.H, 1, [&](int64_t from, int64_t to) {
    for (int64_t head = from; head < to; ++head) {
      std::fill_n(state(head, rule.groups - 1), n, T{0});
      const T* const c = kept.scale<T>(rule, head);
      for (int64_t group = rule.groups - 1; group > 0; --group) {
        const int64_t first = rule.first(group * rule.blocks_of_group),
                      end = std::min(rule.N, rule.first((group + 1) * rule.blocks_of_group));
        join(state(head, group - 1), T{1}, state(head, group),
             c ? Base<T>::power(c[first - 1] - c[end - 1]) : T{1}, n);
      }
    }
  });
  return states;
}

template <class T>
void causal_gradients(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& dsums, Kept& kept, Gradient& dq, Gradient& dk, Gradient& dv) {
  const int64_t m = rule.features.m, E = rule.E, n = rule.state_size();
  Tensor after = states_after<T>(rule, q, k, v, dsums, kept);
  const Heads<const T> d(dsums);
  constexpr T none[block] = {};
  for_groups(rule, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin,
                       int64_t end) {
    const int64_t elements = (span + 1) * FeatureTile<T>::elements(rule.features, rule.features.m) +
                             Scales<T>::elements + span * n + (m + 3 * block + 3 * E + 3) * block;
    Scratch scratch(static_cast<size_t>(elements) * sizeof(T) + 64 * 48);
    std::vector<FeatureTile<T>> fs;
    for (int64_t i = 0; i < span; ++i) fs.emplace_back(rule.features, m, scratch);
    FeatureTile<T> g(rule.features, rule.features.m, scratch);
    Scales<T> scales(scratch);
    T *const states = scratch.take<T>(span * n), *const df = scratch.take<T>(m * block);
    T *const A = scratch.take<T>(block * block), *const dA = scratch.take<T>(block * block),
             *const dA_turned = scratch.take<T>(block * block);
    T *const rows = scratch.take<T>(block * E), *const dn_turned = scratch.take<T>(block * E),
             *const v_turned = scratch.take<T>(block * E);
    T *const delta = scratch.take<T>(block), *const top = scratch.take<T>(block);
    const Head<T> x{rule, Heads<const T>(q),        Heads<const T>(k), Heads<const T>(v), b,
                    h,    kept.scale<T>(rule, head)};
    T* const R = after.data<T>() + (head * rule.groups + group) * n;
    const T* const r = R + m * E;
    for (int64_t to_block = end, from_block; to_block > begin; to_block = from_block) {
      from_block = (to_block - 1) / span * span;
      std::copy_n(kept.state<T>(head, from_block), n, states);
      for (int64_t block_ = from_block; block_ < to_block; ++block_) {
        T* const s = states + (block_ - from_block) * n;
        FeatureTile<T>& f = fs[block_ - from_block];
        x.keys(block_, x.before(block_), false, top, f, scales);
        if (block_ + 1 == to_block) break;
        std::copy_n(s, n, s + n);
        x.add_keys(block_, f, scales, rows, s + n);
      }
      for (int64_t block_ = to_block - 1; block_ >= from_block; --block_) {
        const T *const S = states + (block_ - from_block) * n, *const z = S + m * E;
        FeatureTile<T>& f = fs[block_ - from_block];
        const int64_t first = rule.first(block_), count = f.count(), lanes = f.lanes();
        scales.set(x.c ? x.c + first : nullptr, count, x.before(block_));
        const T *const from_before = scales.from_before(), *const to_last = scales.to_last();
        x.queries(block_, top, g);
        const T *const pf = f.features(), *const pg = g.features();
        const T *const dn = d.at(b, first, h), *const values = x.v.at(b, first, h);

        pack_transposed(dn, d.token, count, lanes, E, T{1}, dn_turned);
        std::fill_n(delta, block, T{0});
        for (int64_t i = 0; i < count; ++i) delta[i] = dn[i * d.token + E];
        weights<T>(count, lanes, E, {values, x.v.token, 1}, dn_turned, delta, scales.within(), dA);

        // Keys and values, with R.
        if (dv.to.defined()) {
          const Heads<T> to(dv.to);
          T* const p = to.at(b, first, h);
          weights<T>(count, lanes, m, {pf, 1, lanes}, pg, none, scales.within(), A);
          gemm_tile<T>(count, E, m, {pf, 1, lanes}, R, E, rows, E, false);
          weigh(rows, E, to_last, count, E, rows);
          for (int64_t j = 0; j < count; j += step)
            gemm_tile<T>(std::min(step, count - j), E, count - j, {A + j * (block + 1), block, 1},
                         dn + j * d.token, d.token, rows + j * E, E, true);
          simd([=, add = dv.beta != 0] {
            for (int64_t j = 0; j < count; ++j)
              for (int64_t e = 0; e < E; ++e) {
                T& to_e = p[j * to.token + e];
                to_e = add ? to_e + rows[j * E + e] : rows[j * E + e];
              }
          });
        }
        if (dk.to.defined()) {
          pack_transposed(dA, block, count, lanes, count, T{1}, dA_turned);
          pack_transposed(values, x.v.token, count, lanes, E, T{1}, v_turned);
          weigh_lanes(to_last, E, lanes, v_turned);
          for (int64_t j = 0; j < count; j += step)
            gemm_tile<T>(m, step, count - j, {pg + j, lanes, 1}, dA_turned + j * (lanes + 1), lanes,
                         df + j, lanes, false);
          gemm_tile<T>(m, lanes, E, {R, E, 1}, v_turned, lanes, df, lanes, true);
          f.input_gradient(df, r, to_last, Heads<T>(dk.to), b, first, dk.beta != 0);
        }
        // What goes on to the blocks before, and the queries, with S.
        weigh(dn, d.token, from_before, count, E, rows);
        weigh_lanes(from_before, 1, block, delta);
        if (dq.to.defined()) {
          weigh_lanes(from_before, E, lanes, dn_turned);
          for (int64_t i = 0; i < count; i += step)
            gemm_tile<T>(m, step, std::min(i + step, count), {pf, lanes, 1}, dA + i, block, df + i,
                         lanes, false);
          gemm_tile<T>(m, lanes, E, {S, E, 1}, dn_turned, lanes, df, lanes, true);
          g.input_gradient(df, z, delta, Heads<T>(dq.to), b, first, dq.beta != 0);
        }
        if (block_ > begin) add_block(rule, R, scales.decay(), g, rows, delta);
      }
    }
  });
}

// (B, N, H, 1) u8: where f holds for the normaliser of (B, N, H, D + 1); undefined if nowhere.
template <class F>
Tensor where_normaliser(const Tensor& sums, F f) {
  const Tensor den = sums.slice(3, -1, sums.size(3)).contiguous();
  Tensor out = Tensor::empty(den.shape(), DType::u8);
  bool any = false;
  dispatch_float(den.dtype(), [&]<class T>() {
    const T* const d = den.data<T>();
    uint8_t* const o = out.data<uint8_t>();
    for (int64_t i = 0; i < den.numel(); ++i) any |= o[i] = f(d[i]);
  });
  return any ? out : Tensor();
}

}  // namespace

Variable causal_kernel_sums(const Variable& q_, const Variable& k_, const Variable& v_,
                            const CausalKernelOptions& options) {
  const Shape &qs = q_.shape(), &ks = k_.shape(), &vs = v_.shape();
  check<ShapeError>(qs.rank() == 4 && ks == qs && vs.rank() == 4 && vs[0] == qs[0] &&
                        vs[1] == qs[1] && vs[2] == qs[2] && qs.numel() > 0 && vs.numel() > 0,
                    "causal_kernel_sums: q and k (B, N, H, D) and v (B, N, H, E) are wanted, "
                    "nothing empty, not q ",
                    qs, ", k ", ks, ", v ", vs);
  const DType dtype = q_.dtype();
  check<ShapeError>(is_float(dtype) && k_.dtype() == dtype && v_.dtype() == dtype,
                    "causal_kernel_sums: one float dtype is wanted, not q ", dtype, ", k ",
                    k_.dtype(), ", v ", v_.dtype());
  const Tensor& c = options.log_scale;
  check<ShapeError>(!c.defined() || (!options.exponentials && c.dtype() == dtype &&
                                     c.shape() == Shape{vs[0], vs[1], vs[2]}),
                    "causal_kernel_sums: a log_scale (B, N, H) for features of ", qs,
                    " that are no exponentials is wanted, not ", c.defined() ? c.shape() : Shape{});
  check<ShapeError>(1 <= options.chunk && options.chunk <= causal_chunk,
                    "causal_kernel_sums: chunks of 1 to ", causal_chunk, " tokens are wanted, not ",
                    options.chunk);
  const Rule rule(feature_rule("causal_kernel_sums", q_, options.exponentials, options.projection,
                               options.half_norm),
                  vs, options.chunk, options.exponentials || c.defined());
  const Variable q = with_contiguous_rows(q_), k = with_contiguous_rows(k_),
                 v = with_contiguous_rows(v_);
  const bool gradients =
      grad_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  Kept kept(rule, gradients ? span : rule.blocks_of_group, dtype);
  Tensor out = Tensor::empty({rule.B, rule.N, rule.H, rule.E + 1}, dtype);
  dispatch_float(dtype, [&]<class T>() {
    if (c.defined()) {
      copy_into(kept.c, c.transpose(1, 2));
      T* const p = kept.c.data<T>();
      for (int64_t i = 0; i < c.numel(); ++i) p[i] *= static_cast<T>(Base<T>::log_e);
    }
    causal_sums<T>(rule, q.value(), k.value(), v.value(), kept, out);
  });
  return record("causal_kernel_sums", out, {q, k, v},
                [rule, q = q.value(), k = k.value(), v = v.value(), kept](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
                  const Tensor dsums = with_contiguous_rows(grad_out);
                  auto [dq, dk, dv] = gradients_of(grad_in);
                  dispatch_float(q.dtype(), [&]<class T>() {
                    causal_gradients<T>(rule, q, k, v, dsums, kept, dq, dk, dv);
                  });
                });
}

Variable normalised(const Variable& sums, const Guard& guard) {
  const int64_t D = sums.size(3) - 1;
  const double eps = guard.eps;
  Variable den = slice(sums, 3, D, D + 1);
  const auto replace = [&](const Variable& by, auto f) {
    if (const Tensor at = where_normaliser(sums.value(), f); at.defined()) den = where(at, by, den);
  };
  const auto constant = [&](double x) { return Variable(Tensor::scalar(x, sums.dtype())); };
  if (guard.kind == Guard::Kind::add)
    replace(den + 2 * eps, [eps](auto d) { return std::abs(d) <= eps; });
  else if (guard.kind == Guard::Kind::clamp)
    replace(constant(eps), [eps](auto d) { return d < eps; });
  else
    replace(constant(std::numeric_limits<double>::infinity()), [](auto d) { return d == 0; });
  return slice(sums, 3, 0, D) / den;
}

int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths) {
  const auto real = lengths_or("nonpositive_normalisers: lengths", lengths, normalisers.size(0),
                               normalisers.size(1));
  int64_t count = 0;
  for (int64_t b = 0; b < normalisers.size(0); ++b) {
    const int64_t n = real[b];
    const Tensor dens = normalisers.select(0, b).slice(0, 0, n).contiguous();
    dispatch_float(dens.dtype(), [&]<class T>() {
      const T* const d = dens.data<T>();
      count += std::count_if(d, d + dens.numel(), [](T den) { return den <= 0; });
    });
  }
  return count;
}

Tensor running_max(const Tensor& x) {
  Tensor out = x.contiguous().clone();
  const int64_t N = x.size(1), H = x.size(2);
  dispatch_float(x.dtype(), [&]<class T>() {
    T* p = out.data<T>();
    for (int64_t b = 0; b < x.size(0); ++b, p += N * H)
      for (int64_t i = H; i < N * H; ++i) p[i] = std::max(p[i], p[i - H]);
  });
  return out;
}

}  // namespace longhand::attention
