// Gated DeltaNet-2: the delta rule of kda with one gate per key channel for what is erased and one
// per value channel for what is written. Hatamizadeh et al. 2026 (arXiv 2605.22791):
//
//   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + k_i (w_i ∘ v_i - S'_iᵀ (b_i ∘ k_i))ᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//   b_i = sigmoid(x_i W_b),   w_i = sigmoid(x_i W_w)
//
// with queries and keys of unit norm, after silu, and the decays g, norm and gate of kda. With
// `negative`, b_i = 2 sigmoid(x_i W_b): the eigenvalue 1 - Σ_l b_il k_il² of I - k_i (b_i ∘ k_i)ᵀ
// is then at least -1. The short convolution of the paper's block is not part of the variant.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

class Gdn2 final : public ChannelDeltaAttention {
 public:
  Gdn2(const nn::Scope& scope_, const Config& config, const ChannelDeltaOptions& options)
      : ChannelDeltaAttention(scope_, config, options, {.beta = false}),
        erase_(scope("erase"), config.width(), config.width(), false),
        write_(scope("write"), config.width(), config.width(), false) {
    const auto width = static_cast<double>(config.width());
    add_work({4 * width * width, 2 * width});
  }

  // In memory: both gates, and the gated keys and values.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    return ChannelDeltaAttention::work(queries, keys) + Work{{}, {}, 4 * N * H * D * bytes};
  }

  DeltaInputs operands(const Inputs& in) const override {
    DeltaInputs out = ChannelDeltaAttention::operands(in);
    const Shape& shape = in.v.shape();
    out.read = out.k * strengths(reshape(erase_.forward(in.x), shape));
    out.v = in.v * sigmoid(reshape(write_.forward(in.x), shape));
    return out;
  }

 private:
  nn::Linear erase_, write_;  // W_b, W_w
};

using namespace conformance;

// The same strength for all channels of a head.
void gdn2_limits(Findings& f) {
  const OptionSet options{{"rank", 2}};
  const auto gdn2 = make_variant("gdn2", options, made(true)),
             kda = make_variant("kda", options, made(true));
  nn::StateDict values = kda->state_dict();
  const Tensor strengths = values.at("beta.weight");  // (H, H D)
  values.erase("beta.weight");
  const Tensor equal_channels =
      strengths.unsqueeze(1).expand({H, D, H * D}).contiguous().reshape({H * D, H * D});
  values["erase.weight"] = equal_channels;
  values["write.weight"] = equal_channels;
  set(*gdn2, values);
  equal(f, "equal gates and kda", *gdn2, *kda, 1e-12);
}

// With decays per channel and arbitrary gates: the weights of the definition.
void gdn2_weights(Findings& f) {
  const auto variant = make_variant(
      "gdn2", {{"silu", false}, {"negative", true}, {"norm", false}, {"gate", false}}, made(true));
  // Values are multiplied by 1/2.
  set(*variant, {{"write.weight", Tensor::zeros({H * D, H * D}, DType::f64)}});
  const Sample x;
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const auto of = [&](const char* name) { return Variable(variant->state_dict().at(name)); };
  const Variable tokens(q.contiguous().reshape({1, N, H * D}));
  const auto unit = [](const Tensor& t) {
    const Variable v(t);
    return v / sqrt(sum(square(v), {3}, true) + eps_of_length);
  };
  const auto by_head = [&](const Variable& t) { return reshape(t, q.shape()); };
  const Variable erase = 2 * sigmoid(by_head(linear(tokens, of("erase.weight")))),
                 steps = softplus(by_head(linear(linear(tokens, of("decay_down.weight")),
                                                 of("decay_up.weight"))) +
                                  of("step_bias"));
  const Variable expected =
      definitions::delta(unit(q) / 2, unit(k), Variable(Tensor::full({1, N, H}, 1, DType::f64)),
                         -(steps * exp(of("log_rate"))), unit(k) * erase);
  equal(f, "weights", weights(*variant, q, k), (expected / 2).value().select(0, 0).select(0, 0),
        1e-12);
}

void gdn2_parity(Findings& f) {
  follows_parity(f, "gdn2", {{"silu", false}, {"negative", true}, {"norm", false}, {"gate", false}},
                 {{"erase.weight", Tensor::from<double>({400, -400, 0, 0}, {2, 2})},
                  {"decay_up.weight", Tensor::zeros({2, 2}, DType::f64)},
                  {"step_bias", Tensor::full({1, 2}, -800, DType::f64)}});
}

}  // namespace

Spec gdn2_variant() {
  return make_spec<ChannelDeltaOptions, Gdn2>(
      {.summary = "the delta rule of kda with gates per channel for what is erased and written",
       .paper = "Hatamizadeh et al. 2026, arXiv 2605.22791",
       .cases = {{},
                 {{"silu", false}, {"norm", false}, {"gate", false}},
                 {{"negative", true}, {"norm", false}, {"rank", 2}}},
       .evidence = {{"equal-gates", "with equal gates in a head it is kda", gdn2_limits},
                    {"erase-weights", "the weights of a delta rule that reads with gated keys",
                     gdn2_weights},
                    {"parity", "with negative eigenvalues the state follows the parity of bits",
                     gdn2_parity}}});
}

}  // namespace longhand::attention
