// Gaussian kernel attention. Chen et al. 2021 (arXiv 2111.00035). With x̂ = D^(-1/4) x
//
//   κ(x, y) = exp(-|x̂ - ŷ|² / (2 sigma²))
//   O = C V,  C_ij = κ(q_i, k_j)   "kernelized attention"; with `normalized`, divided by row sums
//
// Normalised and with sigma = 1, C has the weights of a softmax of (q·k - |k|²/2) / sqrt(D): the
// norms of queries cancel, and if all keys have the same norm this is softmax attention.
// skyformer.cpp approximates it through landmarks.
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/gaussian_kernel.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

struct GaussianOptions {
  double sigma = 1, dropout = 0;
  bool normalized = true;

  void describe(OptionVisitor& v) {
    v.number("sigma", sigma, {1e-6, 1e6}, "bandwidth of the Gaussian kernel of x / D^(1/4)");
    v.boolean("normalized", normalized, "whether each row of weights is divided by its sum");
    v.number("dropout", dropout, NumberRange::fraction(),
             "dropout probability for attention weights");
  }
  Capabilities capabilities() const {
    return {.averages = normalized,
            .any_mask = true,
            .causal = true,
            .decodes = true,
            .time = "N M D",
            .memory = "N M"};
  }
  // The weights, their exponents if these are not normalised, and the weights without dropout; the
  // scores and their gradients.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const bool drops = dropout > 0 && e.training;
    const double scratch = (drops ? 1.25 : 2) * z.pairs;
    return {.kept = ((normalized ? 1 : 2) + (drops ? 1 : 0)) * z.pairs +
                    (config.causal ? e.queries * e.keys / 4 : 0),
            .forward = std::max(scratch - z.values, 0.0),
            .backward = std::max(scratch - 5 * z.values, 0.0)};
  }
};

class Gaussian final : public Variant {
 public:
  Gaussian(const nn::Scope& scope_, const Config& config, const GaussianOptions& options)
      : Variant(scope_, config),
        sigma_(options.sigma),
        dropout_(options.dropout),
        normalized_(options.normalized) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(),
                              {.scale = scale(), .distance = true, .normalized = normalized_});
  }
  int64_t state_bytes(int64_t tokens) const override {
    return decodes() ? cache_bytes(config(), parameter_dtype(), tokens) : 0;
  }

  Work work(int64_t queries, int64_t keys) const override {
    const double pairs = static_cast<double>(config().heads * queries * keys);
    const double D = static_cast<double>(config().head_dim);
    return {{4 * pairs * D, pairs},
            {8 * pairs * D},
            2 * pairs * static_cast<double>(size_of(parameter_dtype()))};
  }

 private:
  double scale() const {
    return 1 / (sigma_ * sigma_ * std::sqrt(static_cast<double>(config().head_dim)));
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable Q = transpose(inputs.q, 1, 2), K = transpose(inputs.k, 1, 2),
                   V = transpose(inputs.v, 1, 2);
    // In a normalised row the norm of the query cancels.
    Variable s =
        normalized_
            ? affine(matmul(Q, transpose(K, 2, 3)) - transpose(half_norms(K), 2, 3), scale())
            : gaussian_exponents(Q, K, scale());
    if (mask.bias.defined()) s = s + mask.bias;
    s = masked_scores(s, config().causal, mask.lengths);
    if (mask.keep.defined()) s = masked_scores(mask.keep, s);
    Variable C = normalized_ ? softmax(s) : exp(s);
    if (pass.training && dropout_ > 0) C = dropout(C, dropout_, pass.random.fork(full_name()));
    return transpose(matmul(C, V), 1, 2);
  }

  double sigma_, dropout_;
  bool normalized_;
};

}  // namespace

Spec gaussian_variant() {
  const std::string moved = "landmarks belong to a separate variant: type = \"skyformer\"";
  return make_spec<GaussianOptions, Gaussian>(
      {.summary = "attention with the Gaussian kernel, normalised or not",
       .paper = "Chen et al. 2021, arXiv 2111.00035",
       .cases = {{}, {{"sigma", 0.7}, {"normalized", false}, {"dropout", 0.3}}},
       .evidence = {{"limits", "keys of equal norms give softmax; weights match the closed form",
                     conformance::gaussian_limits}},
       .replaced = {{"landmarks", moved},
                    {"gamma", moved},
                    {"inverse", moved},
                    {"inverse_iterations", moved},
                    {"redraw_interval", moved}}});
}

}  // namespace longhand::attention
