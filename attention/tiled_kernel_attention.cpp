// With features f_jl = φ(k_j)_l of keys and g_il = φ(q_i)_l of queries, for each head:
//
//   S = Σ_j f_j v_jᵀ (m, E),  z = Σ_j f_j (m),   den_i = g_i·z,  o_i = Sᵀ g_i / den_i
//
// and for the gradients, with n_i = do_i / den_i and δ_i = -(n_i·o_i):
//
//   dS = Σ_i g_i n_iᵀ,  dz = Σ_i δ_i g_i,   dg_i = S n_i + δ_i z
//   df_j = dS v_j + dz,  dv_j = dSᵀ f_j
//
// Of features that are exponentials, of t_jl for keys and s_il for queries, every factor common to
// a query cancels, and so does one that all g_l gain and all f_l lose. With c_l = max_j t_jl
//
//   f_jl = e^(t_jl - c_l),   g_il = e^(s_il + c_l - max_l (s_il + c_l)),   den_i >= 1
//
// whatever the norms. c rises while keys go by, S and z shrink then. dt = f df, ds = g dg; with t =
// W k - a |k|²,  dk_j = Wᵀ dt_j - 2 a k_j Σ_l dt_jl.
//
// A tile has its features down and its tokens across. Features of the keys and of the queries are
// computed again for the gradients: that costs 4 of 24 N m D, and no N x m matrix is ever written.
#include "longhand/attention/tiled_kernel_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/feature_tile.h"
#include "longhand/attention/tiles.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;
using namespace tiles;

struct Sizes {
  int64_t B, N, M, H, D, E, m;
  // Tokens are dealt out to so many groups, each a task that sums over its own, if there are few
  // heads to work on at once. Sums over groups go in order.
  int64_t groups(int64_t tokens) const {
    constexpr int64_t tasks = 32, tokens_of_group = 512;
    return std::clamp<int64_t>((tasks + B * H - 1) / (B * H), 1,
                               std::max<int64_t>(1, tokens / tokens_of_group));
  }
};

struct Rule {
  Sizes sizes;
  FeatureRule features;
  std::vector<int32_t> key_lengths;
  Guard guard;
};

// What is summed over the keys of each head, and its gradient: (sets, B H, m, E) and (sets, B H,
// m).
struct Sums {
  Tensor products, features;

  Sums(const Sizes& z, int64_t sets, DType dtype)
      : products(Tensor::empty({sets, z.B * z.H, z.m, z.E}, dtype)),
        features(Tensor::empty({sets, z.B * z.H, z.m}, dtype)) {}
  template <class T>
  T* S(int64_t set, int64_t head) {
    return products.data<T>() +
           (set * products.size(1) + head) * products.size(2) * products.size(3);
  }
  template <class T>
  T* z(int64_t set, int64_t head) {
    return features.data<T>() + (set * features.size(1) + head) * features.size(2);
  }
};

// Calls visit(b, h, head number, group, begin, end) for the tokens of each group of each head, in
// blocks' multiples; one task each.
template <class F>
void for_groups(const Sizes& z, int64_t tokens, F visit) {
  const int64_t groups = z.groups(tokens);
  const int64_t size = ((tokens + groups - 1) / groups + block - 1) / block * block;
  parallel_for(z.B * z.H * groups, 1, [&](int64_t from, int64_t to) {
    for (int64_t task = from; task < to; ++task) {
      const int64_t head = task / groups, group = task % groups;
      visit(head / z.H, head % z.H, head, group, std::min(tokens, group * size),
            std::min(tokens, (group + 1) * size));
    }
  });
}

template <class T>
void add_to(T* sum, const T* x, int64_t n) {
  simd([=] {
    for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
  });
}

// S, z and, of exponentials, c (B H, m).
template <class T>
void sum_keys(const Rule& rule, const Tensor& k, const Tensor& v, Sums& sums, Tensor& maxima) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hk(k), hv(v);
  const int64_t groups = z.groups(z.M), m = z.m, E = z.E;
  Sums parts(z, groups, k.dtype());
  Tensor tops = Tensor::empty({groups, z.B * z.H, m}, k.dtype());
  for_groups(
      z, z.M, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin, int64_t end) {
        Scratch scratch(
            static_cast<size_t>(FeatureTile<T>::elements(rule.features) + m) * sizeof(T) + 64 * 4);
        FeatureTile<T> tile(rule.features, scratch);
        T *const S = parts.S<T>(group, head), *const sum = parts.z<T>(group, head);
        T *const c = tops.data<T>() + (group * z.B * z.H + head) * m, *const shrink =
                                                                          scratch.take<T>(m);
        std::fill_n(S, m * E, T{0});
        std::fill_n(sum, m, T{0});
        std::fill_n(c, m, -infinity<T>);
        end = std::min<int64_t>(end, rule.key_lengths[b]);
        for (int64_t j = begin; j < end; j += block) {
          tile.start(hk, b, h, j, std::min(block, end - j), true);
          if (rule.features.exponentials) {
            tile.raise(c, shrink);
            tile.exponentiate_keys(c);
          }
          simd([=, exponentials = rule.features.exponentials, lanes = tile.lanes(),
                f = tile.features()] {
            for (int64_t l = 0; l < m; ++l) {
              if (exponentials && shrink[l] != 1) {
                sum[l] *= shrink[l];
                for (int64_t e = 0; e < E; ++e) S[l * E + e] *= shrink[l];
              }
            }
            add_sums_of_lanes<T>(f, nullptr, m, lanes, sum);
          });
          gemm_tile<T>(m, E, tile.count(), {tile.features(), tile.lanes(), 1}, hv.at(b, j, h),
                       hv.token, S, E, true);
        }
      });
  // Joined, with the largest c.
  const int64_t heads = z.B * z.H;
  const bool exponentials = rule.features.exponentials;
  T *const all_S = sums.S<T>(0, 0), *const all_z = sums.z<T>(0, 0);
  const T *const part_S = parts.S<T>(0, 0), *const part_z = parts.z<T>(0, 0);
  const T* const top = tops.data<T>();
  T* const c = exponentials ? maxima.data<T>() : nullptr;
  parallel_for(heads * m, std::max<int64_t>(1, (int64_t{1} << 15) / (groups * E)),
               [=](int64_t begin, int64_t end) {
                 simd([=] {
                   for (int64_t l = begin; l < end; ++l) {  // head m + feature
                     T most = top[l];
                     for (int64_t g = 1; g < groups; ++g)
                       most = std::max(most, top[g * heads * m + l]);
                     // Of an empty sequence; then anything finite will do.
                     if (most == -infinity<T>) most = 0;
                     if (exponentials) c[l] = most;
                     T* const S = all_S + l * E;
                     T sum = 0;
                     std::fill_n(S, E, T{0});
                     for (int64_t g = 0; g < groups; ++g) {
                       const int64_t at = g * heads * m + l;
                       const T shrink =
                           !exponentials || top[at] == most ? T{1} : Base<T>::power(top[at] - most);
                       sum += shrink * part_z[at];
                       for (int64_t e = 0; e < E; ++e) S[e] += shrink * part_S[at * E + e];
                     }
                     all_z[l] = sum;
                   }
                 });
               });
}

// What a sum is multiplied with, and whether the normaliser passes a gradient on.
template <class T>
struct Inverse {
  T factor;
  bool passes;
};

template <class T>
Inverse<T> inverse_of(T den, const Guard& guard) {
  const T eps = static_cast<T>(guard.eps);
  if (guard.kind == Guard::Kind::add && std::abs(den) <= eps) return {1 / (den + 2 * eps), true};
  if (guard.kind == Guard::Kind::clamp && den < eps) return {1 / eps, false};
  if (den == 0) return {T{0}, false};
  return {1 / den, true};
}

template <class T>
void attend(const Rule& rule, const Tensor& q, Sums& sums, const Tensor& maxima, Tensor& out,
            Tensor& normalisers) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q);
  const Heads<T> ho(out);
  const int64_t m = z.m, E = z.E;
  T* const dens = normalisers.data<T>();
  for_groups(z, z.N, [&](int64_t b, int64_t h, int64_t head, int64_t, int64_t begin, int64_t end) {
    Scratch scratch(
        static_cast<size_t>(FeatureTile<T>::elements(rule.features) + block) * sizeof(T) + 64 * 4);
    FeatureTile<T> tile(rule.features, scratch);
    T* const den = scratch.take<T>(block);
    const T *const S = sums.S<T>(0, head), *const sum = sums.z<T>(0, head);
    for (int64_t first = begin; first < end; first += block) {
      tile.start(hq, b, h, first, std::min(block, end - first), false);
      if (rule.features.exponentials) tile.exponentiate_queries(maxima.data<T>() + head * m);
      T* const g = tile.features();
      const int64_t count = tile.count(), lanes = tile.lanes();
      T* const to = ho.at(b, first, h);
      gemm_tile<T>(count, E, m, {g, 1, lanes}, S, E, to, ho.token, false);
      simd([=, guard = rule.guard] {
        std::fill_n(den, lanes, T{0});
        for (int64_t l = 0; l < m; ++l)
          for (int64_t i = 0; i < lanes; ++i) den[i] += g[l * lanes + i] * sum[l];
        for (int64_t i = 0; i < count; ++i) {
          dens[(b * z.N + first + i) * z.H + h] = den[i];
          const T factor = inverse_of(den[i], guard).factor;
          for (int64_t e = 0; e < E; ++e) to[i * ho.token + e] *= factor;
        }
      });
    }
  });
}

// dq, and dS and dz.
template <class T>
void query_gradients(const Rule& rule, const Tensor& q, Sums& sums, const Tensor& maxima,
                     const Tensor& out, const Tensor& normalisers, const Tensor& dout, Gradient& dq,
                     Sums& gradients) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q), ho(out), hdo(dout);
  const int64_t groups = z.groups(z.N), m = z.m, E = z.E;
  Sums parts(z, groups, q.dtype());
  const T* const dens = normalisers.data<T>();
  for_groups(
      z, z.N, [&](int64_t b, int64_t h, int64_t head, int64_t group, int64_t begin, int64_t end) {
        const int64_t elements = FeatureTile<T>::elements(rule.features) + (m + 2 * E + 1) * block;
        Scratch scratch(static_cast<size_t>(elements) * sizeof(T) + 64 * 8);
        FeatureTile<T> tile(rule.features, scratch);
        T *const dg = scratch.take<T>(m * block), *const delta = scratch.take<T>(block);
        T *const n = scratch.take<T>(E * block), *const turned = scratch.take<T>(E * block);
        const T *const S = sums.S<T>(0, head), *const sum = sums.z<T>(0, head);
        T *const dS = parts.S<T>(group, head), *const dz = parts.z<T>(group, head);
        std::fill_n(dS, m * E, T{0});
        std::fill_n(dz, m, T{0});
        for (int64_t first = begin; first < end; first += block) {
          tile.start(hq, b, h, first, std::min(block, end - first), false);
          if (rule.features.exponentials) tile.exponentiate_queries(maxima.data<T>() + head * m);
          const T* const g = tile.features();
          const int64_t count = tile.count(), lanes = tile.lanes();
          const T *const from = hdo.at(b, first, h), *const o = ho.at(b, first, h);
          simd([=, guard = rule.guard] {
            for (int64_t i = 0; i < count; ++i) {
              const auto [factor, passes] =
                  inverse_of(dens[(b * z.N + first + i) * z.H + h], guard);
              for (int64_t e = 0; e < E; ++e) n[i * E + e] = factor * from[i * hdo.token + e];
              delta[i] = passes ? -kernels::row_dot(n + i * E, o + i * ho.token, E) : T{0};
            }
            std::fill(delta + count, delta + lanes, T{0});
          });
          pack_transposed(n, E, count, lanes, E, T{1}, turned);
          gemm_tile<T>(m, lanes, E, {S, E, 1}, turned, lanes, dg, lanes, false);
          simd([=] {
            for (int64_t l = 0; l < m; ++l)
              for (int64_t i = 0; i < lanes; ++i) dg[l * lanes + i] += sum[l] * delta[i];
            add_sums_of_lanes(g, delta, m, lanes, dz);
          });
          gemm_tile<T>(m, E, count, {g, lanes, 1}, n, E, dS, E, true);
          if (dq.to.defined())
            tile.input_gradient(dg, hq, Heads<T>(dq.to), b, first, false, dq.beta != 0);
        }
      });
  parallel_for(z.B * z.H, 1, [&](int64_t from, int64_t to) {
    for (int64_t head = from; head < to; ++head) {
      T *const dS = gradients.S<T>(0, head), *const dz = gradients.z<T>(0, head);
      std::copy_n(parts.S<T>(0, head), m * E, dS);
      std::copy_n(parts.z<T>(0, head), m, dz);
      for (int64_t g = 1; g < groups; ++g) {
        add_to(dS, parts.S<T>(g, head), m * E);
        add_to(dz, parts.z<T>(g, head), m);
      }
    }
  });
}

// dk and dv, from dS and dz.
template <class T>
void key_gradients(const Rule& rule, const Tensor& k, const Tensor& v, const Tensor& maxima,
                   Sums& gradients, Gradient& dk, Gradient& dv) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hk(k), hv(v);
  const int64_t m = z.m, E = z.E;
  for_groups(z, z.M, [&](int64_t b, int64_t h, int64_t head, int64_t, int64_t begin, int64_t end) {
    const int64_t elements = FeatureTile<T>::elements(rule.features) + (m + E) * block;
    Scratch scratch(static_cast<size_t>(elements) * sizeof(T) + 64 * 8);
    FeatureTile<T> tile(rule.features, scratch);
    T *const df = scratch.take<T>(m * block), *const turned = scratch.take<T>(E * block);
    const T *const dS = gradients.S<T>(0, head), *const dz = gradients.z<T>(0, head);
    const int64_t real = std::clamp<int64_t>(rule.key_lengths[b], begin, end);
    for (int64_t j = begin; j < real; j += block) {
      tile.start(hk, b, h, j, std::min(block, real - j), true);
      if (rule.features.exponentials) tile.exponentiate_keys(maxima.data<T>() + head * m);
      const T* const f = tile.features();
      const int64_t count = tile.count(), lanes = tile.lanes();
      if (dv.to.defined()) {
        const Heads<T> to(dv.to);
        gemm_tile<T>(count, E, m, {f, 1, lanes}, dS, E, to.at(b, j, h), to.token, dv.beta != 0);
      }
      if (!dk.to.defined()) continue;
      pack_transposed(hv.at(b, j, h), hv.token, count, lanes, E, T{1}, turned);
      gemm_tile<T>(m, lanes, E, {dS, E, 1}, turned, lanes, df, lanes, false);
      simd([=] {
        for (int64_t l = 0; l < m; ++l)
          for (int64_t i = 0; i < lanes; ++i) df[l * lanes + i] += dz[l];
      });
      tile.input_gradient(df, hk, Heads<T>(dk.to), b, j, true, dk.beta != 0);
    }
    for (Gradient* const g : {&dk, &dv})
      if (g->to.defined() && g->beta == 0) {
        const Heads<T> to(g->to);
        for (int64_t j = real; j < end; ++j) std::fill_n(to.at(b, j, h), g->to.size(3), T{0});
      }
  });
}

}  // namespace

Variable kernel_attention(const Variable& q_, const Variable& k_, const Variable& v_,
                          const KernelAttentionOptions& options, Tensor* normalisers) {
  const Shape &qs = q_.shape(), &ks = k_.shape(), &vs = v_.shape();
  check<ShapeError>(qs.rank() == 4 && ks.rank() == 4 && vs.rank() == 4 && qs[0] == ks[0] &&
                        qs[2] == ks[2] && qs[3] == ks[3] && vs[0] == ks[0] && vs[1] == ks[1] &&
                        vs[2] == ks[2] && qs.numel() > 0 && ks.numel() > 0 && vs.numel() > 0,
                    "kernel_attention: q (B, N, H, D), k (B, M, H, D) and v (B, M, H, E) are "
                    "wanted, nothing empty, not q ",
                    qs, ", k ", ks, ", v ", vs);
  check<ShapeError>(is_float(q_.dtype()) && q_.dtype() == k_.dtype() && q_.dtype() == v_.dtype(),
                    "kernel_attention: one float dtype is wanted, not q ", q_.dtype(), ", k ",
                    k_.dtype(), ", v ", v_.dtype());
  const FeatureRule features = feature_rule("kernel_attention", q_, options.exponentials,
                                            options.projection, options.half_norm);
  const Sizes z{qs[0], qs[1], ks[1], qs[2], qs[3], vs[3], features.m};
  const Rule rule{z, features,
                  lengths_or("kernel_attention: key_lengths", options.key_lengths, z.B, z.M),
                  options.guard};
  const Variable q = with_contiguous_rows(q_), k = with_contiguous_rows(k_),
                 v = with_contiguous_rows(v_);
  const DType dtype = q.dtype();
  Sums sums(z, 1, dtype);
  Tensor maxima = rule.features.exponentials ? Tensor::empty({z.B * z.H, z.m}, dtype) : Tensor();
  Tensor out = Tensor::empty({z.B, z.N, z.H, z.E}, dtype);
  Tensor den = Tensor::empty({z.B, z.N, z.H}, dtype);
  dispatch_float(dtype, [&]<class T>() {
    sum_keys<T>(rule, k.value(), v.value(), sums, maxima);
    attend<T>(rule, q.value(), sums, maxima, out, den);
  });
  if (normalisers) *normalisers = den;
  return record("kernel_attention", out, {q, k, v},
                [rule, q = q.value(), k = k.value(), v = v.value(), sums, maxima, out, den](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
                  const Tensor dout = grad_out.strides()[3] == 1 ? grad_out : grad_out.contiguous();
                  auto [dq, dk, dv] = gradients_of(grad_in);
                  dispatch_float(q.dtype(), [&]<class T>() {
                    Sums gradients(rule.sizes, 1, q.dtype());
                    query_gradients<T>(rule, q, sums, maxima, out, den, dout, dq, gradients);
                    key_gradients<T>(rule, k, v, maxima, gradients, dk, dv);
                  });
                });
}

}  // namespace longhand::attention
