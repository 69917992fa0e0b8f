// Softmax attention with a forget gate. Lin et al. 2025, "Forgetting Transformer" (arXiv
// 2503.02130), eq. 3-4: the past of each head decays by f_t = e^(g_t), computed from token t,
//
//   O_i = Σ_j p_ij v_j,  p_ij = softmax_j(q_i·k_j / sqrt(D) + G_i - G_j) over j <= i
//   g_t = log sigmoid(w x_t + b),  G_i = Σ_(t<=i) g_t
//
// Computed tile by tile in O(N) memory (softmax_attention.h), or as written.
#include <algorithm>
#include <cmath>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {
namespace {

struct ForgettingOptions {
  std::string impl = "tiled";
  double gate_bias = 0, dropout = 0;
  int64_t window = 0;

  bool tiled() const { return impl == "tiled"; }

  void describe(OptionVisitor& v) {
    v.choice(
        "impl", impl, {"tiled", "naive"},
        "how it is computed: tile by tile in O(N) memory, or with the N x N probabilities stored");
    v.number("gate_bias", gate_bias, {},
             "initial b of the forget gates sigmoid(w x + b): the larger, the longer the memory");
    v.integer("window", window, {0},
              "with w > 0, queries attend to keys with i - j < w; 0: to all earlier keys");
    describe_dropout(v, dropout);
  }

  Capabilities capabilities() const {
    return {.positional = true,
            .causal = true,
            .causal_only = true,
            .decodes = true,
            .cross_lengths = false,
            .uses_x = true,
            .needs = tiled() ? Needs::keys : Needs::heads,
            .time = "N^2 D",
            .memory = tiled() ? "N" : "N^2"};
  }
};

class Forgetting final : public Variant {
 public:
  Forgetting(const nn::Scope& scope_, const Config& config, const ForgettingOptions& options)
      : Variant(scope_, config),
        options_(options),
        gate_(scope("gate"), config.width(), config.heads) {
    gate_.bias->mutable_value().fill(options.gate_bias);
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(),
                              {.scale = config().softmax_scale(),
                               .window = options_.window,
                               .log_decay = [this](const Token& token) {
                                 const NoGrad no_grad;
                                 return gates(Variable(token.x)).value();
                               }});
  }

  // Counts Q Kᵀ and P V; in the backward pass dV, dP, dQ and dK and, if tiled, Q Kᵀ and the
  // exponentials again; and the projection to the gates.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double gates = 2 * N * H * D;
    if (!options_.tiled())
      return H * Work{{4 * N * M * D + gates, N * M}, {8 * N * M * D + 2 * gates}, 8 * N * M};
    const double seen =
        options_.window ? std::min(M / 2, static_cast<double>(options_.window)) : M / 2;
    return H * (softmax_work(N * seen, D, 12 * N) + Work{{gates}, {2 * gates}});
  }

 protected:
  bool takes_all(const Mask& mask) const override {
    return options_.tiled() && !mask.lengths.defined();
  }

 private:
  // g = log sigmoid(W x + b), (…, H).
  Variable gates(const Variable& x) const override { return softplus(gate_.forward(x), -1, -1); }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const DropoutOptions drop = weight_dropout(options_.dropout, pass);
    const Variable& g = inputs.x;  // gates(), (B, N, H)
    if (options_.tiled())
      return softmax_attention(
          q, k, v,
          {.causal = true,
           .window = options_.window,
           .key_lengths = mask.lengths,
           .query_lengths = lengths_from(mask.lengths, pass.tokens.first, q.size(1)),
           .log_decay = g,
           .dropout = drop,
           .first_query = first_query(pass)});
    const int64_t N = q.size(1);
    const Tensor seen =
        definitions::visible(N, N,
                             {.causal = true,
                              .lengths = mask.lengths,
                              .window = options_.window ? options_.window - 1 : -1});
    return definitions::apply(dropped(definitions::forgetting(q, k, g, seen), drop), v);
  }

  ForgettingOptions options_;
  nn::Linear gate_;
};

using namespace conformance;

void forgetting_limits(Findings& f) {
  const auto open = make_variant("forgetting", {{"gate_bias", 40.0}}, made(true));
  equal(f, "open gates and softmax", *open, *make_variant("softmax", {}, made(true)), 1e-12);
  // Gates that do not depend on x, with log sigmoid(b_h) = -slope_h.
  const auto constant = make_variant("forgetting", {}, made(true));
  Tensor b = Tensor::zeros({H}, DType::f64);
  for (int64_t h = 0; h < H; ++h) {
    const double slope = std::exp2(-8 * static_cast<double>(h + 1) / static_cast<double>(H));
    b.slice(0, h, h + 1).fill(-std::log(std::expm1(slope)));
  }
  set(*constant, {{"gate.weight", Tensor::zeros({H, H * D}, DType::f64)}, {"gate.bias", b}});
  equal(f, "constant gates and ALiBi", *constant,
        *make_variant("softmax", {{"bias", "alibi"}}, made(true)), 1e-12);
  const Shape shape{2, 203, H, D};  // more than a tile
  const Sample x{normal(shape, 1, DType::f64, 1), normal(shape, 2, DType::f64, 1),
                 normal(shape, 3, DType::f64, 1), normal(shape, 4)};
  for (OptionSet options : {OptionSet{}, OptionSet{{"window", 60}}}) {
    const auto tiled = make_variant("forgetting", options, made(true));
    options.emplace_back("impl", "naive");
    equal(f, "tiled and naive", *tiled, *make_variant("forgetting", options, made(true)), 1e-12, x,
          lengths({203, 98}));
  }
}

}  // namespace

Spec forgetting_variant() {
  return make_spec<ForgettingOptions, Forgetting>(
      {.summary = "softmax attention in which gates computed from tokens let the past fade",
       .paper = "Lin et al. 2025, arXiv 2503.02130",
       .cases = {{},
                 {{"impl", "naive"}, {"dropout", 0.3}, {"gate_bias", 2.0}},
                 {{"window", 5}, {"dropout", 0.3}, {"gate_bias", -1.0}}},
       .evidence = {
           {"open-gates", "with open gates it is causal softmax attention", forgetting_limits}}});
}

}  // namespace longhand::attention
