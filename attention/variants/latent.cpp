// Attention through learned latents, for each head:
//
//   O = softmax(Q Lᵀ / sqrt(D)) softmax(L Kᵀ / sqrt(D)) V,   L (m, D) learned
//
// The latents attend to all tokens, and the queries to the latents. The induced set attention of
// Lee et al. 2019 (arXiv 1810.00825), eq. 9-10, without its feed-forward part; also the packed
// attention of Luna, Ma et al. 2021 (arXiv 2106.01540), eq. 3-4, with keys as they are. The same L
// serves as queries and as keys, so that each latent answers the queries that ask for what it
// collects. The weights have rank at most m.

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/joined_softmax.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct LatentOptions {
  int64_t latents = 32;

  void describe(OptionVisitor& v) {
    v.integer("latents", latents, {1, 1 << 20}, "number of latents m of each head");
  }
  Capabilities capabilities() const {
    return {.causal_reason = "every latent attends to all tokens",
            .needs = Needs::sums,
            .time = "N m D",
            .memory = "m D"};
  }
};

class Latent final : public Variant {
 public:
  Latent(const nn::Scope& scope_, const Config& config, const LatentOptions& options)
      : Variant(scope_, config),
        count_(options.latents),
        latents_(scope("latents"), {config.heads, count_, config.head_dim}, nn::init::normal(1)) {}

  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double m = static_cast<double>(count_), pairs = (N + M) * m;
    return H * softmax_work(pairs, D, m * D * bytes);
  }
  int64_t rank(int64_t) const override { return count_; }
  std::string advice(int64_t tokens) const override {
    if (2 * count_ < tokens) return {};
    return concat_message("attention.latents = ", count_, " for at most ", tokens,
                          " tokens takes the time of softmax attention or more; reduce it");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t B = inputs.q.size(0), H = config().heads, D = config().head_dim;
    const Tensor lengths = lengths_from(mask.lengths, pass.tokens.first, inputs.q.size(1));
    const Variable L = broadcast_to(unsqueeze(transpose(latents_, 0, 1), 0), {B, count_, H, D});
    const Variable collected =
        joined_softmax_attention(L, inputs.k, inputs.v, {.key_lengths = lengths}, pass.join);
    return softmax_attention(inputs.q, L, collected, {.query_lengths = lengths});
  }

  int64_t count_;
  nn::Parameter latents_;  // (H, m, D)
};

using namespace conformance;

void latent_limits(Findings& f) {
  const auto equal_latents = make_variant("latent", {{"latents", 3}}, made());
  set(*equal_latents, {{"latents", Tensor::zeros({H, 3, D}, DType::f64)}});
  const Sample x;
  equal(f, "latents of 0 and mean", forward(*equal_latents, x),
        forward(*make_variant("mean", {}, made()), x), 1e-12);
  // One latent is the query of all tokens.
  const auto single = make_variant("latent", {{"latents", 1}}, made());
  const Tensor L = single->state_dict().at("latents");  // (H, 1, D)
  const Tensor queries = L.transpose(0, 1).unsqueeze(0).expand({2, N, H, D});
  equal(f, "one latent and softmax", forward(*single, x),
        forward(*make_variant("softmax", {}, made()), queries, x.k, x.v), 1e-12);
}

}  // namespace

Spec latent_variant() {
  return make_spec<LatentOptions, Latent>(
      {.summary = "softmax attention to m learned latents, which attend to all tokens",
       .paper = "Lee et al. 2019, arXiv 1810.00825",
       .cases = {{{"latents", 4}}, {{"latents", 20}}},
       .evidence = {{"limits",
                     "latents of 0 give the mean; one latent gives all queries its result",
                     latent_limits}}});
}

}  // namespace longhand::attention
