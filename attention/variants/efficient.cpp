// Causally, O_i = sum_d ρ_id sum_(j<=i) e^(k_jd - L_id) v_j with ρ = softmax_D(q) and L_id = log
// sum_(j<=i) e^k_jd. As e^(k_jd - L_id) = e^(k_jd - L_jd) e^(L_jd - L_id), that is a scan with the
// keys e^(k - L) <= 1 and, of each entry d, the log decay L_(i-1) - L_i <= 0: gated linear attention
// whose gates make every entry of the state a mean of values.
#include "longhand/attention/variants/efficient.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/registry.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/dropout_option.h"
#include "longhand/attention/decoding/state_decoder.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

Variable causal(const Variable& q, const Variable& k, const Variable& v) {
  const Variable L = log_cumulative_sum_exp(k);
  return scan({softmax(q), exp(k - L), v, log_decay_of_scale(L)}, nullptr,
              {.normalizer = false, .final_state = false})
      .out;
}

class EfficientAttention final : public Variant {
 public:
  EfficientAttention(const nn::Scope& scope_, const Config& config) : Variant(scope_, config) {
    refuse_dropout(config, config.name);
    Traits& traits = mutable_traits();
    traits.summary = "softmax over entries of queries, softmax over positions of keys";
    traits.random = false;
    traits.time = "N D^2";
    traits.memory = "N D";
    traits.state = std::string("-");
    traits.paper = "Shen et al. 2018, arXiv 1812.01243";
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const auto step = [](const Tensor& q, const Tensor& k, const Tensor& v, int64_t) {
      return StepInputs{.q = softmax(Variable(q)).value(),
                        .k = Tensor::full(k.shape(), 1, k.dtype()),
                        .v = v,
                        .key_log = k};
    };
    return make_state_decoder(batch, config(), step, Normalizer::features);
  }

  std::optional<int64_t> rank(int64_t tokens) const override {
    if (config().causal || config().head_dim >= tokens) return {};
    return config().head_dim;
  }

  Cost cost(int64_t queries, int64_t keys) const override {
    const double N = static_cast<double>(queries), M = static_cast<double>(keys);
    const double D = static_cast<double>(config().head_dim);
    const double heads = static_cast<double>(config().heads);
    double flops = (N + M) * (2 * D * D + 5 * D), numbers = (N + M) * D + D * D;
    if (config().causal) {
      const double C = std::min(static_cast<double>(scan_block), N);
      flops += 6 * N * C * D;
      numbers += N * C + std::ceil(N / C) * D * D;
    }
    return {heads * flops, heads * numbers * static_cast<double>(size_of(parameter_dtype()))};
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass&) override {
    if (config().causal) return causal(q, k, v);
    Variable keys = permute(k, {0, 2, 3, 1});  // (B, H, D, M)
    if (mask.lengths.defined())
      keys = where(real_tokens(mask.lengths, k.size(1)).permute({0, 2, 3, 1}), keys, never);
    const Variable mixed = matmul(softmax(keys), transpose(v, 1, 2));  // (B, H, D, D)
    return transpose(matmul(softmax(transpose(q, 1, 2)), mixed), 1, 2);
  }
};

}  // namespace

std::unique_ptr<Variant> make_efficient_attention(const nn::Scope& scope, const Config& config) {
  return std::make_unique<EfficientAttention>(scope, config);
}

}  // namespace longhand::attention
