// The best low-rank attention, as an oracle: softmax attention whose weights are replaced by the
// nearest matrix of rank r. Eckart & Young 1936; with P = softmax(Q Kᵀ / sqrt(D)) = U Σ Vᵀ
//
//   O = P_r V,   P_r = sum of σ_i u_i v_iᵀ over i <= r = U_r U_rᵀ P
//
// |P - P_r|² = sum of σ_i² over i > r: no matrix of rank r is nearer. r is fixed, or the
// smallest with sum_(i<=r) e_i >= energy sum e_i, where e = σ² ("squares") or σ ("values", as
// in Wang et al. 2020, arXiv 2006.04768). P excludes padding: only the real rows and columns of a
// sample are decomposed. The cost is N³: this variant shows what low rank can achieve, it saves
// nothing.
//
// The gradient is either that of U_r U_rᵀ P with a constant U_r ("projector"), dP = U_r U_rᵀ dP_r,
// or that of P_r ("exact"): with G = Uᵀ dP_r V and i <= r < j
//
//   dP = Π G' + G' Π' - Π G' Π' + sum_ij x_ij u_i v_jᵀ + y_ij u_j v_iᵀ
//   x_ij = (σ_j² G_ij + σ_i σ_j G_ji) / (σ_i² - σ_j²),   y_ij = (σ_j² G_ji + σ_i σ_j G_ij) / same
//
// where G' = dP_r, Π = U_r U_rᵀ, Π' = V_r V_rᵀ: large where σ_r is near σ_(r+1). Pairs of equal σ
// have x = y = 0.
#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/bases/latest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

struct Rule {
  int64_t rank;    // if energy is 0
  double energy;   // fraction of the sum that is kept
  bool squares;    // the sum is over σ², not σ
  bool projector;  // the gradient holds U_r constant
};

// The decomposition of one matrix: factors of all singular values, and how many are kept.
struct Kept {
  Svd svd;
  int64_t rank = 0;
  double energy = 0;
};

Kept decompose(const Tensor& P, const Rule& rule) {
  Kept kept{svd(P)};
  const std::vector<double> s = kept.svd.s.to_vector<double>();
  const auto part = [&](double sigma) { return rule.squares ? sigma * sigma : sigma; };
  double total = 0, sum = 0;
  for (const double sigma : s) total += part(sigma);
  const auto enough = [&] {
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
  for (int64_t i = 0; i < r; ++i)
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

// Returns P_r of P (B, H, N, M), 0 outside the first lengths[b] rows and columns if lengths are
// given.
Variable truncated(const Variable& P, const std::vector<int32_t>& lengths, const Rule& rule,
                   std::vector<Kept>& kept) {
  const int64_t count = P.size(0) * P.size(1);
  Tensor out = Tensor::zeros(P.shape(), P.dtype());
  kept.assign(count, {});
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Tensor from = real_part(P.value(), i, lengths).to(DType::f64);
      if (from.numel() == 0) continue;
      kept[i] = decompose(from, rule);
      const Tensor u = first(kept[i].svd.u, kept[i].rank);
      Tensor to = real_part(out, i, lengths);
      copy_into(to, product(u, product(u.transpose(0, 1), from)));
    }
  });
  return record("low_rank", out, {P},
                [kept, lengths, projector = rule.projector](const Tensor& grad_out,
                                                            std::span<GradSlot> grad_in) {
                  Tensor dP = Tensor::zeros(grad_out.shape(), grad_out.dtype());
                  parallel_for(static_cast<int64_t>(kept.size()), 1,
                               [&](int64_t begin, int64_t end) {
                                 for (int64_t i = begin; i < end; ++i) {
                                   Tensor to = real_part(dP, i, lengths);
                                   const Tensor G = real_part(grad_out, i, lengths).to(DType::f64);
                                   if (G.numel()) copy_into(to, gradient(kept[i], G, projector));
                                 }
                               });
                  grad_in[0].take(dP);
                });
}

struct SvdOptions {
  int64_t rank = 16;
  double energy = 0;
  std::string energy_of = "squares", gradient = "projector";
  bool renormalize = false;

  void describe(OptionVisitor& v) {
    v.number("energy", energy, {0, 1},
             "fraction of the sum that the kept singular values must reach, using as few as "
             "possible; 0: keep `rank` of them");
    v.when(energy == 0, "energy = 0",
           [&] { v.integer("rank", rank, {1}, "number of singular values kept"); });
    v.when(energy > 0, "energy above 0", [&] {
      v.choice("energy_of", energy_of, {"squares", "values"},
               "what is summed: squared singular values, or singular values");
    });
    v.boolean("renormalize", renormalize, "whether each row of weights is divided by its sum");
    v.choice("gradient", gradient, {"projector", "exact"},
             "gradient with the singular vectors held constant, or the exact gradient of the "
             "truncation");
  }

  Capabilities capabilities() const {
    return {.averages = renormalize,
            .separate_queries = false,
            .any_mask = true,
            .causal_reason = "a triangular matrix truncated to rank r is dense",
            .needs = Needs::heads,
            .time = "N^3",
            .memory = "N M"};
  }
  // P, P_r, and the singular vectors in f64.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const double least = std::min(e.queries, e.keys);
    const double vectors = 2 * e.batch * z.H * (e.queries + e.keys) * least;
    return {.kept = 2 * z.pairs + vectors + (renormalize ? z.values : 0),
            .forward = 1.5 * z.pairs,
            .backward = 2 * z.pairs};
  }
};

class SvdAttention final : public Variant {
 public:
  SvdAttention(const nn::Scope& scope_, const Config& config, const SvdOptions& options)
      : Variant(scope_, config),
        renormalize_(options.renormalize),
        rule_{.rank = options.energy > 0 ? 0 : options.rank,
              .energy = options.energy,
              .squares = options.energy_of == "squares",
              .projector = options.gradient == "projector"} {}

  std::string algorithm(int64_t tokens) const override {
    if (rule_.energy > 0 || tokens > rule_.rank) return {};
    return concat_message("softmax: the rank of ", tokens, " tokens is at most ", rule_.rank);
  }
  std::optional<int64_t> rank(int64_t tokens) const override {
    if (rule_.energy > 0 || rule_.rank >= tokens) return {};
    return rule_.rank;
  }
  Work work(int64_t queries, int64_t keys) const override {
    const auto N = static_cast<double>(queries), M = static_cast<double>(keys),
               H = static_cast<double>(config().heads), D = static_cast<double>(config().head_dim);
    const double least = std::min(N, M), most = std::max(N, M);
    // A decomposition takes about 6 m n² + 20 n³ for m >= n (Golub & Van Loan); it is done in f64.
    const double svd = 6 * most * least * least + 20 * least * least * least;
    return H *
           Work{{4 * N * M * D + svd, N * M},
                {8 * N * M * D + 4 * most * least * least},
                3 * N * M * static_cast<double>(size_of(parameter_dtype())) + (N + M) * least * 8};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const double tau = 1 / std::sqrt(static_cast<double>(q.size(3)));
    Variable scores = matmul(transpose(q, 1, 2), permute(k, {0, 2, 3, 1}), tau);
    scores = masked_scores(scores, false, mask.lengths);
    if (mask.bias.defined()) scores = scores + mask.bias;
    if (mask.keep.defined()) scores = masked_scores(mask.keep, scores);
    const Variable P = softmax(scores);
    std::vector<Kept> kept;
    const Variable Pr = truncated(
        P, mask.lengths.defined() ? mask.lengths.to_vector<int32_t>() : std::vector<int32_t>(),
        rule_, kept);
    note(kept);
    Variable out = matmul(Pr, transpose(v, 1, 2));
    if (!renormalize_ && !mask.keep.defined() && !mask.bias.defined()) return transpose(out, 1, 2);
    // A query without keys, such as padding, has a row of zeros in P and of rounding errors in P_r.
    // Truncation may also remove all of a row, which then cannot be normalised.
    const Variable sums = sum(Pr, {3}, true);
    Tensor attends = Tensor::empty(sums.shape(), DType::u8);
    const auto whole = sum(P, {3}).value().to_vector<double>();
    const auto left = sums.value().to_vector<double>();
    std::transform(whole.begin(), whole.end(), left.begin(), attends.data<uint8_t>(),
                   [this](double w, double cut) {
                     return w > 0.5 && !(renormalize_ && std::abs(cut) <= 1e-6);
                   });
    if (mask.lengths.defined()) attends = both(attends, mask.lengths);
    if (renormalize_) out = out / where(attends, sums, 1.0);
    return transpose(where(attends, out, 0.0), 1, 2);
  }

  // Returns `attends` (B, H, N, 1), cleared for queries at padding.
  static Tensor both(const Tensor& attends, const Tensor& lengths) {
    Tensor out = attends.clone();
    for (int64_t b = 0; b < out.size(0); ++b)
      out.select(0, b).slice(1, lengths.data<int32_t>()[b], out.size(2)).fill(0);
    return out;
  }

  struct Means {
    double rank = 0, energy = 0;
  };

  void note(const std::vector<Kept>& kept) {
    double matrices = 0;
    Means means;
    for (const Kept& each : kept) {
      if (each.rank == 0) continue;
      matrices += 1;
      means.rank += static_cast<double>(each.rank);
      means.energy += each.energy;
    }
    if (matrices > 0) {
      means.rank /= matrices;
      means.energy /= matrices;
    }
    means_.set(means);
  }

  // Means over the heads and samples of the latest pass: the number of singular values kept, and
  // their fraction of the sum of all (of squares, unless energy_of is "values").
  std::map<std::string, double> own_metrics() const override {
    const Means means = means_.get();
    if (means.rank == 0) return {};
    return {{"rank", means.rank}, {"energy", means.energy}};
  }

  bool renormalize_;
  Rule rule_;
  Latest<Means> means_;
};

}  // namespace

Spec svd_variant() {
  return make_spec<SvdOptions, SvdAttention>(
      {.summary = "softmax attention truncated to rank r, the best possible: an oracle",
       .paper = "Eckart & Young 1936",
       .cases = {{{"rank", 2}, {"gradient", "exact"}},
                 {{"energy", 0.9}, {"energy_of", "values"}, {"gradient", "exact"}},
                 {{"rank", 3}, {"renormalize", true}, {"gradient", "exact"}}},
       .evidence = {{"eckart-young",
                     "r = N gives softmax; the error is that of the singular values left out",
                     conformance::svd_limits}}});
}

}  // namespace longhand::attention
