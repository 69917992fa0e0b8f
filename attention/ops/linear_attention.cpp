// With features f_jl = φ(k_j)_l of keys and g_il = φ(q_i)_l of queries, for each head:
//
//   S = Σ_j f_j v_jᵀ (m, E),  z = Σ_j f_j (m),   den_i = g_i·z,  o_i = Sᵀ g_i / den_i
//
// and for the gradients, with n_i = do_i / den_i and δ_i = -(n_i·o_i):
//
//   dS = Σ_i g_i n_iᵀ,  dz = Σ_i δ_i g_i,   dg_i = S n_i + δ_i z
//   df_j = dS v_j + dz,  dv_j = dSᵀ f_j
//
// If the features are exponentials, of t_jl for keys and s_il for queries, any factor common to all
// features of a query cancels, and so does a factor that multiplies all g_l and divides all f_l.
// With c_l = max_j t_jl
//
//   f_jl = e^(t_jl - c_l),   g_il = e^(s_il + c_l - C_i),   C_i = max_l (s_il + c_l),   den_i >= 1
//
// for vectors of any norm. c rises from block to block of keys, and C from block to block of
// features; the sums so far are then scaled down. dt = f df, ds = g dg; with t = W k - a |k|²,
// dk_j = Wᵀ dt_j - 2 a k_j Σ_l dt_jl.
//
// With waves, t_jl = w_l·k_j for keys, and the features are [cos t, sin t] or cos(t + b). Queries
// have plain features g. Keys have a factor e^(h_j), h_j = -a |k_j|², relative to c = max_j h_j,
// which cancels: f_j = e^(h_j - c) [cos t, sin t]. Then
//
//   dt = f_cos df_sin - f_sin df_cos,   dh_j = df_j·f_j,   dk_j = Wᵀ dt_j - 2 a k_j dh_j
//
// The rows of a tile are features and its columns tokens; a tile holds one block of features at a
// time. Features of keys and queries are recomputed for the gradients: this costs 4 of 24 N m D,
// and no N x m matrix is ever stored.
#include "longhand/attention/ops/linear_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/ops/tile/features.h"
#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/attention/ops/tile/state.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;
using namespace tile;

constexpr int64_t feature_block = 64;  // features per tile

struct Sizes {
  int64_t B, N, M, H, E, m;
  // The number of groups, each a task that computes the partial sums of its tokens; more than one
  // if there are few heads to process in parallel. Partial sums are added in order.
  int64_t groups(int64_t tokens) const {
    constexpr int64_t tasks = 32, tokens_of_group = 512;
    // Limits the length of sums in f32.
    constexpr int64_t tokens_of_sum = 16384;
    return std::clamp<int64_t>(std::max((tasks + B * H - 1) / (B * H), tokens / tokens_of_sum), 1,
                               std::max<int64_t>(1, tokens / tokens_of_group));
  }
};

struct Rule {
  Sizes sizes;
  FeatureRule features;
  std::vector<int32_t> key_lengths;
  Guard guard;

  // Whether features of keys are relative to c.
  bool scales_keys() const { return features.exponentials || features.waves; }
};

// Sums over some keys: rows of S (rows, E), z (rows) and, if they are relative to it, c (rows).
template <class T>
struct SumsOfRows {
  T *S, *z, *c;
};

// S and z of each head, or their gradients: (sets, B H, m, E) and (sets, B H, m). With exponentials
// or waves, S and z are relative to c (sets, B H, m), maxima of exponents of Base; with waves, all
// c_l of a head are equal.
struct Sums {
  Tensor products, features, maxima;

  Sums(const Sizes& z, int64_t sets, DType dtype, bool relative)
      : products(Tensor::empty({sets, z.B * z.H, z.m, z.E}, dtype)),
        features(Tensor::empty({sets, z.B * z.H, z.m}, dtype)) {
    if (relative) maxima = Tensor::empty(features.shape(), dtype);
  }
  // Memory for the partial sums of each group; `this` if there is only one group.
  Sums of_groups(const Sizes& z, int64_t groups) const {
    return groups > 1 ? Sums(z, groups, products.dtype(), maxima.defined()) : *this;
  }
  // The sums of one set, from `head` on.
  template <class T>
  SumsOfRows<T> rows(int64_t set, int64_t head) {
    const int64_t at = (set * features.size(1) + head) * features.size(2);
    return {products.data<T>() + at * products.size(3), features.data<T>() + at,
            maxima ? maxima.data<T>() + at : nullptr};
  }
};

// Calls visit(b, h, head index, group, begin, end) for the tokens of each group of each head, one
// task each. Groups are multiples of a block.
template <class F>
void for_groups(const Sizes& z, int64_t tokens, F visit) {
  const int64_t groups = z.groups(tokens);
  const int64_t size = ((tokens + groups - 1) / groups + block - 1) / block * block;
  parallel_for_each(z.B * z.H * groups, 1, [&](int64_t task) {
    const int64_t head = task / groups, group = task % groups;
    visit(head / z.H, head % z.H, head, group, std::min(tokens, group * size),
          std::min(tokens, (group + 1) * size));
  });
}

// The maxima C of the exponents of queries, (B H, N), from `head` on; null without exponentials.
template <class T>
T* tops_of(Tensor& tops, int64_t head) {
  return tops ? tops.data<T>() + head * tops.size(1) : nullptr;
}

// Calls visit(l, n) for each block of the m features.
template <class F>
void for_feature_blocks(int64_t m, F visit) {
  for (int64_t l = 0; l < m; l += feature_block) visit(l, std::min(feature_block, m - l));
}

// Scratch memory of a task.
template <class T>
struct Task {
  Task(const Rule& rule, bool gradients, Scratch& scratch)
      : tile(rule.features, feature_block, scratch),
        delta(scratch.take<T>(block)),
        top(scratch.take<T>(block)),
        shrink(scratch.take<T>(std::max(block, feature_block))) {
    if (!gradients) return;
    dfeatures = scratch.take<T>(feature_block * block);
    scratch.take_each(rule.sizes.E * block, rows, transposed);
  }
  FeatureTile<T> tile;
  T *const delta, *const top;  // one element per token
  T* const shrink;             // factor for the sums of each feature or token
  T *dfeatures = nullptr, *rows = nullptr, *transposed = nullptr;
};

// Joins partial sums part(0), … in order, each relative to its own c, if any. Overwrites their c.
template <class T, class Part>
void join_sums(int64_t count, int64_t all_rows, int64_t E, const Part& part,
               const SumsOfRows<T>& to) {
  parallel_for(all_rows, std::max<int64_t>(1, (int64_t{1} << 15) / (count * E)),
               [&](int64_t begin, int64_t end) {
                 const int64_t rows = end - begin;
                 T *const S = to.S + begin * E, *const sum = to.z + begin;
                 std::copy_n(part(0).S + begin * E, rows * E, S);
                 std::copy_n(part(0).z + begin, rows, sum);
                 std::vector<JoinFactors<T>> joins(rows, JoinFactors<T>{0, 1, 1});
                 T* const c = to.c ? part(0).c + begin : nullptr;
                 for (int64_t g = 1; g < count; ++g) {
                   const SumsOfRows<T> more = part(g);
                   if (c)
                     for (int64_t l = 0; l < rows; ++l) {
                       joins[l] = join_of(c[l], more.c[begin + l]);
                       c[l] = joins[l].scale;
                     }
                   join_rows(S, more.S + begin * E, rows, E, joins.data(), false);
                   join_rows(sum, more.z + begin, rows, 1, joins.data(), false);
                 }
                 if (c) std::copy_n(c, rows, to.c + begin);
               });
}

// Computes S, z and, with exponentials or waves, c, which is -inf if there are no keys.
template <class T>
void sum_keys(const Rule& rule, const Tensor& k, const Tensor& v, Sums& sums) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hk(k), hv(v);
  const int64_t groups = z.groups(z.M), m = z.m, E = z.E;
  const bool scaled = rule.scales_keys();
  Sums parts = sums.of_groups(z, groups);
  for_groups(z, z.M,
             [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin, int64_t end) {
               Workspace<Task<T>> task(rule, false);
               FeatureTile<T>& tile = task->tile;
               T* const shrink = task->shrink;
               const SumsOfRows<T> of_head = parts.rows<T>(group, head);
               T *const S = of_head.S, *const sum = of_head.z, *const c = of_head.c;
               end = std::min<int64_t>(end, rule.key_lengths[b]);
               if (begin >= end) std::fill_n(S, m * E, T{0});
               std::fill_n(sum, m, T{0});
               if (scaled) std::fill_n(c, m, -infinity<T>);
               for (int64_t j = begin; j < end; j += block) {
                 tile.start(hk, b, h, j, std::min(block, end - j), true);
                 for_feature_blocks(m, [&](int64_t l, int64_t n) {
                   tile.compute(l, n);
                   T *const S_l = S + l * E, *const sum_l = sum + l;
                   if (scaled) {
                     tile.raise(c + l, shrink);
                     tile.scale_keys(c + l);
                   }
                   if (scaled && j > begin) {
                     simd([=] {
                       for (int64_t i = 0; i < n; ++i)
                         if (shrink[i] != 1) {
                           sum_l[i] *= shrink[i];
                           for (int64_t e = 0; e < E; ++e) S_l[i * E + e] *= shrink[i];
                         }
                     });
                   }
                   simd([=, lanes = tile.lanes(), f = tile.features()] {
                     add_sums_of_lanes<T>(f, nullptr, n, lanes, sum_l);
                   });
                   gemm_tile<T>(n, E, tile.count(), {tile.features(), tile.lanes(), 1},
                                hv.at(b, j, h), hv.token, S_l, E, j > begin);
                 });
               }
             });
  if (groups == 1) return;
  // Joins the partial sums of the groups, each relative to its own c, in order.
  join_sums<T>(
      groups, z.B * z.H * m, E, [&](int64_t g) { return parts.rows<T>(g, 0); }, sums.rows<T>(0, 0));
}

// Joins the sums of all parts.
template <class T>
void join_parts(const Join& join, Sums& sums) {
  const int64_t rows = sums.features.numel(), E = sums.products.size(3);
  const SumsOfRows<T> to = sums.rows<T>(0, 0);
  T* const c = to.c;
  Tensor own = Tensor::empty({rows * (c ? E + 2 : E + 1)}, sums.products.dtype());
  T* const packed = own.data<T>();
  std::copy_n(to.S, rows * E, packed);
  std::copy_n(to.z, rows, packed + rows * E);
  if (c) std::copy_n(c, rows, packed + rows * (E + 1));
  Tensor all = join.all(own);
  const auto part = [&](int64_t p) -> SumsOfRows<T> {
    T* const from = all.data<T>() + p * own.numel();
    return {from, from + rows * E, c ? from + rows * (E + 1) : nullptr};
  };
  join_sums<T>(join.parts(), rows, E, part, to);
}

template <class T>
void attend(const Rule& rule, const Tensor& q, Sums& sums, Tensor& tops, Tensor& out,
            Tensor& normalisers) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q);
  const Heads<T> ho(out);
  const int64_t m = z.m, E = z.E;
  T* const dens = normalisers.data<T>();
  for_groups(z, z.N, [&](int64_t b, int64_t h, int64_t head, int64_t, int64_t begin, int64_t end) {
    Workspace<Task<T>> task(rule, false);
    FeatureTile<T>& tile = task->tile;
    T *const den = task->delta, *const top = task->top, *const shrink = task->shrink;
    const SumsOfRows<T> of_head = sums.rows<T>(0, head);
    T *const S = of_head.S, *const sum = of_head.z, *const c = of_head.c;
    T* const C = tops_of<T>(tops, head);
    for (int64_t first = begin; first < end; first += block) {
      tile.start(hq, b, h, first, std::min(block, end - first), false);
      const int64_t count = tile.count(), lanes = tile.lanes();
      T* const to = ho.at(b, first, h);
      std::fill_n(den, lanes, T{0});
      std::fill_n(top, lanes, -infinity<T>);
      for_feature_blocks(m, [&](int64_t l, int64_t n) {
        tile.compute(l, n);
        if (C) {
          tile.raise_queries(c + l, top, shrink);
          tile.exponentiate_queries(c + l, top);
          if (l > 0)
            simd([=] {
              for (int64_t i = 0; i < lanes; ++i) den[i] *= shrink[i];
              for (int64_t i = 0; i < count; ++i)
                for (int64_t e = 0; e < E; ++e) to[i * ho.token + e] *= shrink[i];
            });
        }
        const T* const g = tile.features();
        simd([=] {
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < lanes; ++j) den[j] += g[i * lanes + j] * sum[l + i];
        });
        gemm_tile<T>(count, E, n, {g, 1, lanes}, S + l * E, E, to, ho.token, l > 0);
      });
      if (C) std::copy_n(top, count, C + first);
      simd([=, guard = rule.guard] {
        for (int64_t i = 0; i < count; ++i) {
          dens[(b * z.N + first + i) * z.H + h] = den[i];
          const T factor = 1 / guard.divisor(den[i]).value;
          for (int64_t e = 0; e < E; ++e) to[i * ho.token + e] *= factor;
        }
      });
    }
  });
}

// Computes dq, dS and dz.
template <class T>
void query_gradients(const Rule& rule, const Tensor& q, Sums& sums, Tensor& tops, const Tensor& out,
                     const Tensor& normalisers, const Tensor& dout, Gradient& dq, Sums& gradients) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q), ho(out), hdo(dout);
  const int64_t groups = z.groups(z.N), m = z.m, E = z.E;
  Sums parts = gradients.of_groups(z, groups);
  const T* const dens = normalisers.data<T>();
  for_groups(
      z, z.N, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin, int64_t end) {
        Workspace<Task<T>> task(rule, true);
        FeatureTile<T>& tile = task->tile;
        T *const dg = task->dfeatures, *const delta = task->delta, *const top = task->top;
        T *const n = task->rows, *const transposed = task->transposed;
        const SumsOfRows<T> of_head = sums.rows<T>(0, head);
        T *const S = of_head.S, *const sum = of_head.z, *const c = of_head.c;
        T *const dS = parts.rows<T>(group, head).S, *const dz = parts.rows<T>(group, head).z;
        const T* const C = tops_of<T>(tops, head);
        if (begin >= end) std::fill_n(dS, m * E, T{0});
        std::fill_n(dz, m, T{0});
        for (int64_t first = begin; first < end; first += block) {
          tile.start(hq, b, h, first, std::min(block, end - first), false);
          const int64_t count = tile.count(), lanes = tile.lanes();
          const T *const from = hdo.at(b, first, h), *const o = ho.at(b, first, h);
          simd([=, guard = rule.guard] {
            for (int64_t i = 0; i < count; ++i) {
              const auto [by, passes] = guard.divisor(dens[(b * z.N + first + i) * z.H + h]);
              const T factor = 1 / by;
              for (int64_t e = 0; e < E; ++e) n[i * E + e] = factor * from[i * hdo.token + e];
              delta[i] = passes ? -kernels::row_dot(n + i * E, o + i * ho.token, E) : T{0};
            }
            std::fill(delta + count, delta + lanes, T{0});
          });
          pack_transposed(n, E, count, E, T{1}, transposed);
          if (C) std::copy_n(C + first, count, top);
          std::fill(top + count, top + lanes, infinity<T>);  // no token: e^-inf
          for_feature_blocks(m, [&](int64_t l, int64_t features) {
            tile.compute(l, features);
            if (C) tile.exponentiate_queries(c + l, top);
            const T* const g = tile.features();
            simd([=] { add_sums_of_lanes(g, delta, features, lanes, dz + l); });
            gemm_tile<T>(features, E, count, {g, lanes, 1}, n, E, dS + l * E, E, first > begin);
            if (!dq.to.defined()) return;
            gemm_tile<T>(features, lanes, E, {S + l * E, E, 1}, transposed, lanes, dg, lanes,
                         false);
            tile.finish_gradient(dg, sum + l, delta);
            tile.input_gradient(dg, Heads<T>(dq.to), b, first, dq.beta != 0);
          });
        }
      });
  if (groups == 1) return;
  join_sums<T>(
      groups, z.B * z.H * m, E, [&](int64_t g) { return parts.rows<T>(g, 0); },
      gradients.rows<T>(0, 0));
}

// Computes dk and dv from dS and dz.
template <class T>
void key_gradients(const Rule& rule, const Tensor& k, const Tensor& v, Sums& sums, Sums& gradients,
                   Gradient& dk, Gradient& dv) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hk(k), hv(v);
  const int64_t m = z.m, E = z.E;
  for_groups(z, z.M, [&](int64_t b, int64_t h, int64_t head, int64_t, int64_t begin, int64_t end) {
    Workspace<Task<T>> task(rule, true);
    FeatureTile<T>& tile = task->tile;
    T *const df = task->dfeatures, *const transposed = task->transposed;
    T ones[block];
    std::fill_n(ones, block, T{1});
    const T* const c = sums.rows<T>(0, head).c;
    const T *const dS = gradients.rows<T>(0, head).S, *const dz = gradients.rows<T>(0, head).z;
    const int64_t real = std::clamp<int64_t>(rule.key_lengths[b], begin, end);
    for (int64_t j = begin; j < real; j += block) {
      tile.start(hk, b, h, j, std::min(block, real - j), true);
      const int64_t count = tile.count(), lanes = tile.lanes();
      pack_transposed(hv.at(b, j, h), hv.token, count, E, T{1}, transposed);
      for_feature_blocks(m, [&](int64_t l, int64_t n) {
        tile.compute(l, n);
        if (c) tile.scale_keys(c + l);
        if (dv.to.defined()) {
          const Heads<T> to(dv.to);
          gemm_tile<T>(count, E, n, {tile.features(), 1, lanes}, dS + l * E, E, to.at(b, j, h),
                       to.token, dv.beta != 0 || l > 0);
        }
        if (!dk.to.defined()) return;
        gemm_tile<T>(n, lanes, E, {dS + l * E, E, 1}, transposed, lanes, df, lanes, false);
        tile.finish_gradient(df, dz + l, ones);
        tile.input_gradient(df, Heads<T>(dk.to), b, j, dk.beta != 0);
      });
    }
    for (Gradient* const g : {&dk, &dv})
      if (g->to.defined() && g->beta == 0) {
        const Heads<T> to(g->to);
        for (int64_t j = real; j < end; ++j) std::fill_n(to.at(b, j, h), g->to.size(3), T{0});
      }
  });
}

}  // namespace

Variable linear_attention(const Variable& q_, const Variable& k_, const Variable& v_,
                          const LinearAttentionOptions& options, Tensor* normalisers) {
  const Shape &qs = q_.shape(), &ks = k_.shape(), &vs = v_.shape();
  check<ShapeError>(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && qs[0] == ks[0] &&
                        qs[2] == ks[2] && qs[3] == ks[3] && vs[0] == ks[0] && vs[1] == ks[1] &&
                        vs[2] == ks[2] && qs.numel() > 0 && ks.numel() > 0 && vs.numel() > 0,
                    "linear_attention: expected q (B, N, H, D), k (B, M, H, D) and v (B, M, H, E), "
                    "nothing empty, got q ",
                    qs, ", k ", ks, ", v ", vs);
  check_one_float_dtype("linear_attention", q_.dtype(), k_.dtype(), v_.dtype());
  const FeatureRule features = feature_rule("linear_attention", q_, options.features);
  const Sizes z{qs[0], qs[1], ks[1], qs[2], vs[3], features.m};
  const Rule rule{z, features,
                  lengths_or("linear_attention: key_lengths", options.key_lengths, z.B, z.M),
                  options.guard};
  const Variable q = with_contiguous_rows(q_), k = with_contiguous_rows(k_),
                 v = with_contiguous_rows(v_);
  const DType dtype = q.dtype();
  const std::shared_ptr<const Join> join = options.join;
  Sums sums(z, 1, dtype, rule.scales_keys());
  Tensor tops = features.exponentials ? Tensor::empty({z.B * z.H, z.N}, dtype) : Tensor();
  Tensor out = Tensor::empty({z.B, z.N, z.H, z.E}, dtype);
  Tensor den = Tensor::empty({z.B, z.N, z.H}, dtype);
  dispatch_float(dtype, [&]<class T>() {
    sum_keys<T>(rule, k.value(), v.value(), sums);
    if (join) join_parts<T>(*join, sums);
    // For an empty sequence c is -inf; any finite value works instead.
    if (T* const c = sums.rows<T>(0, 0).c)
      std::replace(c, c + sums.maxima.numel(), -infinity<T>, T{0});
    attend<T>(rule, q.value(), sums, tops, out, den);
  });
  if (normalisers) *normalisers = den;
  return record("linear_attention", out, {q, k, v},
                [rule, join, q = q.value(), k = k.value(), v = v.value(), sums, tops, out, den](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
                  const Tensor dout = with_contiguous_rows(grad_out);
                  auto to = gradients_of(grad_in);
                  dispatch_float(q.dtype(), [&]<class T>() {
                    auto& [dq, dk, dv] = to;
                    Sums gradients(rule.sizes, 1, q.dtype(), false);
                    query_gradients<T>(rule, q, sums, tops, out, den, dout, dq, gradients);
                    if (join) {
                      gradients.products = join->sum(gradients.products);
                      gradients.features = join->sum(gradients.features);
                    }
                    key_gradients<T>(rule, k, v, sums, gradients, dk, dv);
                  });
                });
}

}  // namespace longhand::attention
