// Gaussian kernel attention. Chen et al. 2021 (arXiv 2111.00035). With x̂ = D^(-1/4) x
//
//   κ(x, y) = exp(-|x̂ - ŷ|² / (2 sigma²))
//   O = C V,  C_ij = κ(q_i, k_j)   "kernelized attention"; with `normalized`, divided by row sums
//
// Normalised and with sigma = 1, C has the weights of a softmax of (q·k - |k|²/2) / sqrt(D): the
// norms of queries cancel, and if all keys have the same norm this is softmax attention. So it is
// computed as softmax attention with a bias of keys, tile by tile in O(N) memory
// (softmax_attention.h): with L_i the logarithm of the normaliser of a query, the unnormalised sums
// are e^(L_i - |q̂_i|² / (2 sigma²)) times the result. With N x M masks, the weights are computed
// as written. skyformer.cpp approximates it through landmarks.
#include <cmath>

#include "longhand/attention/bases/gaussian_kernel.h"
#include "longhand/attention/bases/half_square.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct GaussianOptions {
  double sigma = 1, dropout = 0;
  bool normalized = true;

  void describe(OptionVisitor& v) {
    v.number("sigma", sigma, {1e-6, 1e6}, "bandwidth of the Gaussian kernel of x / D^(1/4)");
    v.boolean("normalized", normalized, "whether each row of weights is divided by its sum");
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    return {.averages = normalized,
            .any_mask = true,
            .causal = true,
            .decodes = true,
            .needs = Needs::keys,
            .time = "N M D",
            .memory = "N"};
  }
};

class Gaussian final : public Variant {
 public:
  Gaussian(const nn::Scope& scope_, const Config& config, const GaussianOptions& options)
      : Variant(scope_, config), options_(options) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(
        batch, config(), {.scale = scale(), .distance = true, .normalized = options_.normalized});
  }

  // As softmax: the backward pass computes Q Kᵀ and the exponentials again.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double seen = config().causal ? M / 2 : M;
    return H * softmax_work(N * seen, D, 4 * N + 12 * M);
  }

 protected:
  // The gradients of the norms of keys read the keys, so padding must be cleared.
  bool takes_all(const Mask& mask) const override { return tiled(mask) && !mask.lengths.defined(); }

 private:
  static bool tiled(const Mask& mask) { return !mask.keep.defined() && !mask.bias.defined(); }
  double scale() const { return gaussian_scale(options_.sigma, config().head_dim); }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const DropoutOptions drop = weight_dropout(options_.dropout, pass);
    return tiled(mask) ? tiles(inputs, mask, pass, drop) : stored(inputs, mask, drop);
  }

  Variable tiles(const Inputs& inputs, const Mask& mask, const nn::Pass& pass,
                 const DropoutOptions& drop) const {
    const SoftmaxAttentionOptions options{
        .scale = scale(),
        .causal = config().causal,
        .key_lengths = mask.lengths,
        .query_lengths = lengths_from(mask.lengths, pass.tokens.first, inputs.q.size(1)),
        .dropout = drop,
        .first_query = first_query(pass)};
    return gaussian_attention(inputs.q, inputs.k, inputs.v, options, options_.normalized);
  }

  Variable stored(const Inputs& inputs, const Mask& mask, const DropoutOptions& drop) const {
    const Variable Q = transpose(inputs.q, 1, 2), K = transpose(inputs.k, 1, 2),
                   V = transpose(inputs.v, 1, 2);
    // In a normalised row the norm of the query cancels.
    Variable s =
        options_.normalized
            ? affine(matmul(Q, transpose(K, 2, 3)) - transpose(half_square(K, 1), 2, 3), scale())
            : gaussian_exponents(Q, K, scale());
    if (mask.bias.defined()) s = s + mask.bias;
    s = masked_scores(s, config().causal, mask.lengths);
    if (mask.keep.defined()) s = masked_scores(mask.keep, s);
    return transpose(matmul(dropped(options_.normalized ? softmax(s) : exp(s), drop), V), 1, 2);
  }

  GaussianOptions options_;
};

using namespace conformance;

void gaussian_limits(Findings& f) {
  // Keys of equal norms: e^(-|q - k|²/2) equals e^(q·k) up to factors of the query.
  Sample x;
  double* k = x.k.data<double>();
  for (int64_t row = 0; row < 2 * N * H; ++row, k += D) {
    double square = 0;
    for (int64_t d = 0; d < D; ++d) square += k[d] * k[d];
    for (int64_t d = 0; d < D; ++d) k[d] *= 1.5 / std::sqrt(square);
  }
  for (const bool causal : {false, true}) {
    const auto gaussian = make_variant("gaussian", {}, made(causal));
    const auto softmax = make_variant("softmax", {}, made(causal));
    equal(f, concat_message(causal ? "causal, " : "", "keys of equal norms and softmax"),
          forward(*gaussian, x), forward(*softmax, x), 1e-12);
  }
  has_weights(f, "e^(-|q - k|² / (2 sqrt D sigma²))", "gaussian", {{"sigma", 1.5}},
              [](const Variable& q, const Variable& key, const Tensor& visible) {
                return definitions::gaussian(q, key, visible, 1.5);
              });
}

}  // namespace

Spec gaussian_variant() {
  const std::string moved = "landmarks belong to a separate variant: type = \"skyformer\"";
  return make_spec<GaussianOptions, Gaussian>(
      {.summary = "attention with the Gaussian kernel, normalised or not",
       .paper = "Chen et al. 2021, arXiv 2111.00035",
       .cases = {{}, {{"sigma", 0.7}, {"normalized", false}, {"dropout", 0.3}}},
       .evidence = {{"limits", "keys of equal norms give softmax; weights match the closed form",
                     gaussian_limits}},
       .replaced = {{"landmarks", moved},
                    {"gamma", moved},
                    {"inverse", moved},
                    {"inverse_iterations", moved},
                    {"redraw_interval", moved}}});
}

}  // namespace longhand::attention
