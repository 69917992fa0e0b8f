// Efficient attention: a softmax over the D entries of each query, and one over the keys for each
// entry d. Shen et al. 2018 (arXiv 1812.01243):
//
//   O = softmax_D(Q) (softmax_M(K)ᵀ V)
//
// The weights of a query are positive and sum to 1; there is no 1/sqrt(D).
//
// Causally, O_i = sum_d ρ_id sum_(j<=i) e^(k_jd - L_id) v_j with ρ = softmax_D(q) and L_id = log
// sum_(j<=i) e^k_jd. As e^(k_jd - L_id) = e^(k_jd - L_jd) e^(L_jd - L_id), this is a scan with
// keys e^(k - L) <= 1 and, for each entry d, the log decay L_(i-1) - L_i <= 0: gated linear
// attention whose gates keep every entry of the state a weighted mean of values.
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/registry.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/state_decoder.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/log_cumulative_sum_exp.h"
#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/ops/scan.h"

namespace longhand::attention {
namespace {

Variable causal(const Variable& q, const Variable& k, const Variable& v,
                const std::shared_ptr<const Join>& join) {
  Variable L = log_cumulative_sum_exp(k), decay;
  if (join) {
    // The keys of the parts before this one, combined into one token.
    const int64_t n = k.size(1);
    const Variable before = log_sum_exp_before(slice(L, 1, n - 1, n), *join);
    const Variable all = log_cumulative_sum_exp(concat({before, k}, 1));
    L = slice(all, 1, 1, n + 1);
    decay = slice(all, 1, 0, n) - L;
  } else {
    decay = log_decay_of_scale(L);
  }
  return scan({softmax(q), exp(k - L), v, decay}, nullptr,
              {.normalizer = false, .final_state = false, .join = join})
      .out;
}

// softmax(keys) v over the tokens of all parts, keys (B, H, D, n), v (B, H, n, E): (B, H, D, E).
Variable mixed(const Variable& keys, const Variable& v, const Tensor& lengths,
               const std::shared_ptr<const Join>& join) {
  if (!join) return matmul(softmax(keys), v);
  Variable top(max_of_parts(max(keys.detach(), 3, true).value(), join));
  // For an empty sequence the maximum is -inf; any finite value works instead.
  if (lengths.defined()) top = where(not_empty(lengths), top, 0.0);
  const Variable weights = exp(keys - top);
  const Variable sums = join->sum(concat({matmul(weights, v), sum(weights, {3}, true)}, 3));
  const int64_t E = v.size(3);
  Variable den = slice(sums, 3, E, E + 1);
  if (lengths.defined()) den = where(not_empty(lengths), den, 1.0);
  return slice(sums, 3, 0, E) / den;
}

struct EfficientOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const {
    return {
        .causal = true, .decodes = true, .needs = Needs::sums, .time = "N D^2", .memory = "N D"};
  }
};

class EfficientAttention final : public Variant {
 public:
  EfficientAttention(const nn::Scope& scope_, const Config& config, const EfficientOptions&)
      : Variant(scope_, config) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const auto step = [](const Token& token, int64_t) {
      return StepInputs{.q = softmax(Variable(token.q)).value(),
                        .k = Tensor::full(token.k.shape(), 1, token.k.dtype()),
                        .v = token.v,
                        .key_log = token.k};
    };
    return make_state_decoder(batch, config(), step, Normalizer::features);
  }

  int64_t rank(int64_t tokens) const override {
    return config().causal ? tokens : config().head_dim;
  }

  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    double numbers = (N + M) * D + D * D;
    if (config().causal) {
      const double C = std::min(static_cast<double>(scan_block), N);
      numbers += N * C + std::ceil(N / C) * D * D;
    }
    return H * Work{{(N + M) * 2 * D * D, (N + M) * D}, {(N + M) * 4 * D * D}, numbers * bytes};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    if (config().causal) return causal(q, k, v, pass.join);
    const Tensor lengths = lengths_from(mask.lengths, pass.tokens.first, k.size(1));
    const Variable keys = masked_scores(permute(k, {0, 2, 3, 1}), false, lengths);  // (B, H, D, M)
    const Variable all = mixed(keys, transpose(v, 1, 2), mask.lengths, pass.join);
    return transpose(matmul(softmax(transpose(q, 1, 2)), all), 1, 2);
  }
};

using namespace conformance;

void efficient_weights(Findings& f) {
  has_weights(f, "weights", "efficient", {}, definitions::efficient, 1e-12);
}

}  // namespace

Spec efficient_variant() {
  return make_spec<EfficientOptions, EfficientAttention>(
      {.summary = "softmax over entries of queries, softmax over positions of keys",
       .paper = "Shen et al. 2018, arXiv 1812.01243",
       .evidence = {{"weights", "the product of the two softmaxes, causally over earlier keys",
                     efficient_weights}}});
}

}  // namespace longhand::attention
