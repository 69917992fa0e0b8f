// Sigmoid attention. Ramapuram et al. 2024 (arXiv 2409.04431), eq. 3, with σ(z) = 1 / (1 + e^-z):
//
//   O_i = Σ_j σ(q_i·k_j / sqrt(D) + b) v_j,  b = -log n
//
// Weights are not normalised, so keys do not compete. n is the length of training sequences, and b
// keeps sums from growing with it; b is the same for all queries and may be learned per head.
// Computed tile by tile in O(N) memory (softmax_attention.h), b as a bias of keys.
#include <cmath>
#include <optional>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct SigmoidOptions {
  int64_t keys = 0;
  bool learned = false;
  double dropout = 0;

  void describe(OptionVisitor& v) {
    v.integer("keys", keys, {0, 1 << 30}, "n of the bias b = -log n; 0: the maximum length");
    v.boolean("learned", learned, "whether b is learned, one per head, starting at -log n");
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    return {.averages = false,
            .causal = true,
            .decodes = true,
            .needs = Needs::keys,
            .time = "N M D",
            .memory = "N"};
  }
};

class Sigmoid final : public Variant {
 public:
  Sigmoid(const nn::Scope& scope_, const Config& config, const SigmoidOptions& options)
      : Variant(scope_, config), dropout_(options.dropout) {
    const double b =
        -std::log(static_cast<double>(options.keys != 0 ? options.keys : config.max_length));
    if (options.learned)
      bias_ = learned_bias_.emplace(scope("bias"), Shape{config.heads}, nn::init::constant(b));
    else
      bias_ = Variable(Tensor::full({config.heads}, b, parameter_dtype()));
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(),
                              {.scale = config().softmax_scale(),
                               .normalized = false,
                               .sigmoid = true,
                               .biases = bias_.value().to_vector<double>()});
  }

  // As softmax: the backward pass computes Q Kᵀ and the exponentials again.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double seen = config().causal ? M / 2 : M;
    return H * softmax_work(N * seen, D, 4 * N + 12 * M);
  }

 protected:
  bool takes_all(const Mask&) const override { return true; }

 private:
  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override {
    const int64_t B = in.q.size(0), H = in.q.size(2);
    const Variable b = heads_of_pass(bias_, 0, H, pass);
    return softmax_attention(
        in.q, in.k, in.v,
        {.causal = config().causal,
         .key_lengths = mask.lengths,
         .query_lengths = lengths_from(mask.lengths, pass.tokens.first, in.q.size(1)),
         .key_bias = broadcast_to(b, {B, in.k.size(1), H}),
         .sigmoid = true,
         .dropout = weight_dropout(dropout_, pass),
         .first_query = first_query(pass)});
  }

  double dropout_;
  std::optional<nn::Parameter> learned_bias_;
  Variable bias_;  // b (H): learned_bias_, or a constant
};

using namespace conformance;

void sigmoid_limits(Findings& f) {
  has_weights(f, "σ(q·k / sqrt D - log 5)", "sigmoid", {{"keys", 5}},
              [](const Variable& q, const Variable& k, const Tensor& visible) {
                return definitions::sigmoid(q, k, visible, -std::log(5.0));
              });
  // As b -> -inf, weights become e^(s + b): softmax weights times their row sums.
  const double b = -35;
  const auto low = make_variant("sigmoid", {{"learned", true}}, made(true));
  set(*low, {{"bias", Tensor::full({H}, b, DType::f64)}});
  const Sample x;
  const auto [out, log_sums] =
      softmax_attention_with_sums(Variable(x.q), Variable(x.k), Variable(x.v), {.causal = true});
  equal(f, "b = -35, and exponentials", affine(Variable(forward(*low, x)), std::exp(-b)).value(),
        (out * exp(unsqueeze(transpose(log_sums, 1, 2), 3))).value(), 1e-12);
}

}  // namespace

Spec sigmoid_variant() {
  return make_spec<SigmoidOptions, Sigmoid>(
      {.summary = "attention whose weights are sigmoids of scores, not normalised",
       .paper = "Ramapuram et al. 2024, arXiv 2409.04431",
       .cases = {{}, {{"keys", 3}, {"learned", true}, {"dropout", 0.3}}},
       .evidence = {{"limits", "weights match the closed form; for b -> -inf they are exponentials",
                     sigmoid_limits}}});
}

}  // namespace longhand::attention
