// Gated convolution: no attention, but a filter over the tokens and a gate. BaseConv of Arora et
// al. 2023 (arXiv 2312.04927), section 4, with short filters; a layer of hybrid models such as
// Based (Arora et al. 2024, arXiv 2402.18668). For tokens x and values v = x V + c
//
//   o_i = (x_i W + b) ∘ sum over 0 <= j < w of f_j ∘ v_(i - w + 1 + j)
//
// where ∘ multiplies channel by channel, and each channel has its own filter f of w tokens,
// learned. Filters look back, even in models that are not causal. Padding counts as 0.
#include <cmath>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/linear.h"
#include "longhand/nn/short_conv.h"

namespace longhand::attention {
namespace {

class ConvDecoder final : public Decoder {
 public:
  ConvDecoder(int64_t heads, Tensor filters, LinearParameters gate)
      : heads_(heads), filters_(std::move(filters)), gate_(std::move(gate)) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    const Tensor v = repeat_groups(token.v, heads_).contiguous();
    const int64_t B = v.size(0), width = v.size(1) * v.size(2);
    const Variable filtered(recent_.step(v.reshape({B, width}), filters_));
    return (linear(Variable(token.x), gate_.weight, gate_.bias) * filtered)
        .value()
        .reshape(v.shape());
  }
  int64_t bytes() const override { return recent_.bytes(); }

 private:
  int64_t heads_;
  Tensor filters_;  // (H D, w)
  LinearParameters gate_;
  nn::ConvState recent_;
};

struct ConvOptions {
  int64_t width = 4;

  void describe(OptionVisitor& v) {
    v.integer("width", width, {1, 1 << 16}, "number w of tokens that a filter covers");
  }
  Capabilities capabilities() const {
    return {.averages = false,
            .linear = false,  // it is, but with different weights in every channel of a head
            .positional = true,
            .causal = true,
            .decodes = true,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .uses_x = true,
            .needs = Needs::neighbours,
            .time = "N D (H D + w)",
            .memory = "w D"};
  }
};

class Conv final : public Variant {
 public:
  Conv(const nn::Scope& scope_, const Config& config, const ConvOptions& options)
      : Variant(scope_, config),
        width_(options.width),
        filter_(scope("filter"), {config.width(), width_},
                nn::init::uniform(1 / std::sqrt(static_cast<double>(width_)))),
        gate_(scope("gate"), config.width(), config.width()) {}

  std::unique_ptr<Decoder> make_decoder(int64_t) const override {
    return std::make_unique<ConvDecoder>(config().heads, filter_.value(), gate_.parameters());
  }
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double flops = N * H * D * (2 * H * D + 2 * static_cast<double>(width_) + 1);
    return {{flops}, {2 * flops}, 2 * N * H * D * bytes};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable& v = inputs.v;
    const int64_t B = v.size(0), N = v.size(1);
    const Variable filtered = nn::conv_of_pass(reshape(v, {B, N, config().width()}), filter_,
                                               {.causal = true, .lengths = mask.lengths}, pass);
    return reshape(gate_.forward(inputs.x).eval() * filtered, v.shape());
  }

  int64_t width_;
  nn::Parameter filter_;  // (H D, w)
  nn::Linear gate_;
};

using namespace conformance;

// A filter of one tap, and an open gate.
void conv_limits(Findings& f) {
  const auto conv = make_variant("conv", {{"width", 1}}, made());
  set(*conv, {{"filter", Tensor::full({H * D, 1}, 1, DType::f64)},
              {"gate.weight", Tensor::zeros({H * D, H * D}, DType::f64)},
              {"gate.bias", Tensor::full({H * D}, 1, DType::f64)}});
  const Sample x;
  const Tensor out = forward(*conv, x), none = forward(*make_variant("none", {}, made()), x);
  f.expect(distance(out, none) == 0, "one tap and an open gate: differs from none by ",
           distance(out, none));
  // A filter of the last tap but two shifts the tokens by two.
  const auto shift = make_variant("conv", {{"width", 4}}, made());
  Tensor filter = Tensor::zeros({H * D, 4}, DType::f64);
  filter.select(1, 1).fill(1);
  set(*shift, {{"filter", filter},
               {"gate.weight", Tensor::zeros({H * D, H * D}, DType::f64)},
               {"gate.bias", Tensor::full({H * D}, 1, DType::f64)}});
  const Tensor shifted = forward(*shift, x);
  f.expect(all_zero(shifted.slice(1, 0, 2)), "a shift by two: the first tokens are not 0");
  f.expect(distance(shifted.slice(1, 2, N), x.v.slice(1, 0, N - 2)) == 0,
           "a shift by two: differs from the values two tokens before");
}

}  // namespace

Spec conv_variant() {
  return make_spec<ConvOptions, Conv>(
      {.summary = "a gated convolution over the tokens: no attention, a layer of hybrids",
       .paper = "Arora et al. 2023, arXiv 2312.04927",
       .cases = {{}, {{"width", 9}}, {{"width", 1}}},
       .evidence = {{"limits",
                     "one tap and an open gate give none; one earlier tap shifts the tokens",
                     conv_limits}}});
}

}  // namespace longhand::attention
