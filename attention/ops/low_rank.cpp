// The gradient is either that of U_r U_rᵀ P with constant U_r ("projector"), dP = U_r U_rᵀ dP_r, or
// that of P_r ("exact"): with G = Uᵀ dP_r V and i <= r < j
//
//   dP = Π G' + G' Π' - Π G' Π' + sum_ij x_ij u_i v_jᵀ + y_ij u_j v_iᵀ
//   x_ij = (σ_j² G_ij + σ_i σ_j G_ji) / (σ_i² - σ_j²),   y_ij = (σ_j² G_ji + σ_i σ_j G_ij) / same
//
// where G' = dP_r, Π = U_r U_rᵀ, Π' = V_r V_rᵀ: large where σ_r is near σ_(r+1). Pairs of equal σ
// have x = y = 0.
#include "longhand/attention/ops/low_rank.h"

#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

// The decomposition of one matrix: factors of all singular values, and how many are kept.
struct Kept {
  Svd svd;
  int64_t rank = 0;
  double energy = 0;
};

// A parallel loop that dry runs enter too, since it allocates most of the memory.
template <class F>
void for_matrices(int64_t count, F&& body) {
  for (int64_t i = 0; is_dry() && i < count; ++i) body(i);
  parallel_for_each(count, 1, body);
}

Kept decompose(const Tensor& P, const LowRankOptions& rule) {
  Kept kept{svd(P)};
  const std::vector<double> s = kept.svd.s.to_vector<double>();
  const auto part = [&](double sigma) { return rule.squares ? sigma * sigma : sigma; };
  double total = 0, sum = 0;
  for (const double sigma : s) total += part(sigma);
  const auto enough = [&] {
    if (is_dry()) return rule.energy <= 0 && kept.rank >= rule.rank;
    return rule.energy > 0 ? sum >= rule.energy * total : kept.rank >= rule.rank;
  };
  while (kept.rank < static_cast<int64_t>(s.size()) && !enough()) sum += part(s[kept.rank++]);
  kept.energy = total > 0 ? sum / total : 1;
  return kept;
}

Tensor product(const Tensor& a, const Tensor& b) {
  return matmul(Variable(a), Variable(b)).value();
}

// Return the first r columns, and the remaining ones.
Tensor first(const Tensor& u, int64_t r) { return u.slice(1, 0, r); }
Tensor others(const Tensor& u, int64_t r) { return u.slice(1, r, u.size(1)); }

// Returns dP for the gradient G of P_r, both (n, m) f64.
Tensor gradient(const Kept& kept, const Tensor& G, bool projector) {
  const int64_t r = kept.rank, k = kept.svd.s.numel();
  const Tensor u = first(kept.svd.u, r), ut = u.transpose(0, 1);
  const Variable inside(product(u, product(ut, G)));
  if (projector) return inside.value();
  const Tensor V = kept.svd.vt.transpose(0, 1), v = first(V, r), vt = v.transpose(0, 1);
  Variable dP = inside + Variable(product(product(G, v), vt)) -
                Variable(product(product(inside.value(), v), vt));
  if (r == k || r == 0) return dP.value();
  const Tensor u2 = others(kept.svd.u, r), v2 = others(V, r);
  const Tensor Gij = product(product(ut, G), v2).contiguous(),  // (r, k - r)
      Gji = product(product(u2.transpose(0, 1), G), v).transpose(0, 1).contiguous();
  Tensor x = Tensor::empty({r, k - r}, DType::f64), y = Tensor::empty({r, k - r}, DType::f64);
  const double* const s = kept.svd.s.data<double>();
  for (int64_t i = 0; !is_dry() && i < r; ++i)
    for (int64_t j = 0; j < k - r; ++j) {
      const int64_t at = i * (k - r) + j;
      const double a = s[i], b = s[r + j], gap = (a - b) * (a + b);
      const double gij = Gij.data<double>()[at], gji = Gji.data<double>()[at];
      const bool apart = gap > 1e-14 * s[0] * s[0];
      x.data<double>()[at] = apart ? (b * b * gij + a * b * gji) / gap : 0;
      y.data<double>()[at] = apart ? (b * b * gji + a * b * gij) / gap : 0;
    }
  dP = dP + Variable(product(product(u, x), v2.transpose(0, 1))) +
       Variable(product(product(u2, y.transpose(0, 1)), vt));
  return dP.value();
}

// Returns the real rows and columns of matrix i of P (B, H, N, M).
Tensor real_part(const Tensor& P, int64_t i, const std::vector<int32_t>& lengths) {
  const int64_t H = P.size(1);
  const Tensor all = P.select(0, i / H).select(0, i % H);
  return lengths.empty() ? all : all.slice(0, 0, lengths[i / H]).slice(1, 0, lengths[i / H]);
}

}  // namespace

LowRank low_rank(const Variable& P, const Tensor& lengths, const LowRankOptions& options) {
  ops::check_float("low_rank", P);
  check<ShapeError>(P.rank() == 4, "low_rank: expected (B, H, N, M), got ", P.shape());
  const std::vector<int32_t> n =
      lengths.defined() ? lengths.to_vector<int32_t>() : std::vector<int32_t>();
  Tensor out = Tensor::zeros(P.shape(), P.dtype());
  std::vector<Kept> kept(static_cast<size_t>(P.size(0) * P.size(1)));
  for_matrices(std::ssize(kept), [&](int64_t i) {
    const Tensor from = real_part(P.value(), i, n).to(DType::f64);
    if (from.numel() == 0) return;
    kept[i] = decompose(from, options);
    const Tensor u = first(kept[i].svd.u, kept[i].rank);
    copy_into(real_part(out, i, n), product(u, product(u.transpose(0, 1), from)));
  });
  LowRank result;
  double matrices = 0;
  for (const Kept& each : kept) {
    if (each.rank == 0) continue;
    matrices += 1;
    result.rank += static_cast<double>(each.rank);
    result.energy += each.energy;
  }
  if (matrices > 0) result.rank /= matrices, result.energy /= matrices;
  result.out = record(
      "low_rank", out, {P},
      [kept, n, projector = options.projector](const Tensor& dPr, std::span<GradSlot> slots) {
        Tensor dP = Tensor::zeros(dPr.shape(), dPr.dtype());
        for_matrices(std::ssize(kept), [&](int64_t i) {
          const Tensor G = real_part(dPr, i, n).to(DType::f64);
          if (G.numel()) copy_into(real_part(dP, i, n), gradient(kept[i], G, projector));
        });
        slots[0].take(dP);
      });
  return result;
}

}  // namespace longhand::attention
