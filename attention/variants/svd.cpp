// The best low-rank attention, as an oracle: softmax attention whose weights are replaced by the
// nearest matrix of rank r. Eckart & Young 1936; with P = softmax(Q Kᵀ / sqrt(D)) = U Σ Vᵀ
//
//   O = P_r V,   P_r = sum of σ_i u_i v_iᵀ over i <= r = U_r U_rᵀ P
//
// |P - P_r|² = sum of σ_i² over i > r: no matrix of rank r is nearer. r is fixed, or the smallest
// with sum_(i<=r) e_i >= energy sum e_i, where e = σ² ("squares") or σ ("values", as in Wang et al.
// 2020, arXiv 2006.04768). P excludes padding: only the real rows and columns of a sample are
// decomposed. The cost is N³: this variant shows what low rank can achieve; it saves nothing.
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/latest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/low_rank.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/linalg.h"

namespace longhand::attention {
namespace {

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
  int64_t rank(int64_t tokens) const override { return rule_.energy > 0 ? tokens : rule_.rank; }
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double least = std::min(N, M), most = std::max(N, M);
    // A decomposition takes about 6 m n² + 20 n³ for m >= n (Golub & Van Loan); it is done in f64.
    const double svd = 6 * most * least * least + 20 * least * least * least;
    return H * Work{{4 * N * M * D + svd, N * M},
                    {8 * N * M * D + 4 * most * least * least},
                    3 * N * M * bytes + (N + M) * least * 8};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    Variable scores =
        matmul(transpose(q, 1, 2), permute(k, {0, 2, 3, 1}), config().softmax_scale());
    scores = masked_scores(scores, false, mask.lengths);
    if (mask.bias.defined()) scores = scores + mask.bias;
    if (mask.keep.defined()) scores = masked_scores(mask.keep, scores);
    const Variable P = softmax(scores);
    const LowRank nearest = low_rank(P, mask.lengths, rule_);
    means_.set({nearest.rank, nearest.energy});
    const Variable& Pr = nearest.out;
    Variable out = matmul(Pr, transpose(v, 1, 2));
    if (!renormalize_ && !mask.keep.defined() && !mask.bias.defined()) return transpose(out, 1, 2);
    // A query without keys, such as padding, has a row of zeros in P and of rounding errors in P_r.
    // Truncation may also remove all of a row, which then cannot be normalised.
    const Variable sums = sum(Pr, {3}, true);
    Tensor attends = Tensor::empty(sums.shape(), DType::u8);
    if (!is_dry()) {
      const auto whole = sum(P, {3}).value().to_vector<double>();
      const auto left = sums.value().to_vector<double>();
      std::transform(whole.begin(), whole.end(), left.begin(), attends.data<uint8_t>(),
                     [this](double w, double cut) {
                       return w > 0.5 && !(renormalize_ && std::abs(cut) <= 1e-6);
                     });
    }
    if (renormalize_) out = out / where(attends, sums, 1.0);
    return transpose(where(attends, out, 0.0), 1, 2);
  }

  struct Means {
    double rank = 0, energy = 0;
  };

  // Means over the heads and samples of the latest pass: the number of singular values kept, and
  // their fraction of the sum of all (of squares, unless energy_of is "values").
  std::map<std::string, double> own_metrics() const override {
    const Means means = means_.get();
    if (means.rank == 0) return {};
    return {{"rank", means.rank}, {"energy", means.energy}};
  }

  bool renormalize_;
  LowRankOptions rule_;
  Latest<Means> means_;
};

using namespace conformance;

void svd_limits(Findings& f) {
  const Sample x;
  const auto softmax = make_variant("softmax", {}, made());
  for (const auto& [name, options] :
       {std::pair<const char*, OptionSet>{"r = N", {{"rank", N}, {"gradient", "exact"}}},
        {"energy 1 of values", {{"energy", 1.0}, {"energy_of", "values"}, {"gradient", "exact"}}}})
    equal(f, name, *make_variant("svd", options, made()), *softmax, 1e-9, x);
  // ‖P - P_r‖² is the sum of the squares of the singular values left out.
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const Tensor P = weights(*softmax, q, k);
  const auto values = svd(P).s.to_vector<double>();
  double left = 0;
  for (int64_t r = N - 1; r >= 1; --r) {
    left += values[r] * values[r];
    const Tensor cut = weights(*make_variant("svd", {{"rank", r}}, made()), q, k);
    double error = 0;
    for (int64_t i = 0; i < N * N; ++i)
      error += std::pow(P.data<double>()[i] - cut.data<double>()[i], 2);
    f.expect(std::abs(error - left) <= 1e-10 * (1 + left), "rank ", r,
             ": expected the squared error ", left, ", that of the singular values left out, got ",
             error);
  }
}

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
                     svd_limits}}});
}

}  // namespace longhand::attention
