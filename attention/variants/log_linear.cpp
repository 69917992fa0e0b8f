// Log-linear attention: mamba2 with the past split into blocks of 1, 2, 4, … tokens, larger ones
// further back, each with a state of its own and a weight computed from the query. Guo et al. 2025
// (arXiv 2506.04761), section 3, for the state space dual of variants/mamba2.cpp:
//
//   o_i = Σ_(j<=i) λ_(i,l(i,j)) e^{a (Δ_(j+1) + … + Δ_i)} (q_i·k_j) Δ_j v_j / sqrt(D) + s v_i
//   λ_i = softplus(m ∘ (x_i Uᵀ + c)),   U (H L, H D), c and m (H L) learned, L levels
//
//   out_i = norm(o_i ∘ silu(x_i Wᵀ))
//
// l(i,i) = 0; for j < i the level l is that of the Fenwick tree (ops/fenwick_scan.h): bit l - 1 of
// i is set, and j is among the 2^(l-1) tokens before i rounded down to a multiple of 2^(l-1). λ is
// a function of the tokens as in the authors' code. The blocks are computed in O(N log N); a
// decoder keeps O(log N) states.
#include <bit>
#include <cmath>

#include "longhand/attention/bases/state_space.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/fenwick_scan.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct LogLinearOptions : StateSpaceOptions {
  int64_t levels = 1;

  static LogLinearOptions defaults(const Config& config) {
    LogLinearOptions options;
    options.levels = 1 + std::bit_width(static_cast<uint64_t>(config.max_length - 1));
    return options;
  }
  void describe(OptionVisitor& v) {
    v.integer(
        "levels", levels, {1, 63},
        "levels L with a scale of their own: blocks of more than 2^(L-2) tokens share the last",
        "those of max_length tokens");
    StateSpaceOptions::describe(v);
  }
  Capabilities capabilities() const {
    Capabilities out = StateSpaceOptions::capabilities();
    out.needs = Needs::tokens;
    out.time = "N log N D^2", out.memory = "N log N D";
    return out;
  }
};

class LogLinear final : public StateSpaceAttention {
 public:
  LogLinear(const nn::Scope& scope_, const Config& config, const LogLinearOptions& options)
      : StateSpaceAttention(scope_, config, options),
        scales_(scope("scales"), config.width(), config.heads * options.levels),
        multiplier_(scope("multiplier"), {config.heads * options.levels}, nn::init::ones()) {
    const auto width = static_cast<double>(config.width()),
               all = static_cast<double>(config.heads * options.levels);
    token_.flops += 2 * width * all, token_.exponentials += all;
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;

  /// λ (B, N, H, levels) of tokens x.
  Variable scales(const Variable& x) const {
    const Variable y = softplus(scales_.forward(x) * multiplier_);
    return reshape(y, {x.size(0), x.size(1), config().heads, y.size(2) / config().heads});
  }

 private:
  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override {
    const Tensor lengths = lengths_from(mask.lengths, pass.tokens.first, in.q.size(1));
    return finished(fenwick_scan(padded_operands(in, lengths), scales(in.x)), in);
  }
  Work sums_work(double tokens, double dim, double bytes) const override {
    // States of leaves are computed once; those of larger blocks are sums of them.
    double products = 4 * dim + (tokens > dim ? 2 * dim * dim : 0), levels = 0;
    for (double b = 1; b < tokens; b *= 2, ++levels) products += std::min(2 * b * dim, dim * dim);
    // In memory: the states of all blocks, two for each leaf, and the queries with their decays.
    return {
        {tokens * products, levels * tokens}, {2 * tokens * products, 0}, 3 * tokens * dim * bytes};
  }

  nn::Linear scales_;
  nn::Parameter multiplier_;  // m
};

class LogLinearDecoder final : public Decoder {
 public:
  explicit LogLinearDecoder(const LogLinear& of, int64_t batch) : of_(of), batch_(batch) {}

  Tensor step(const Token& token) override { return advance(token, true); }
  void append(const Token& token) override { advance(token, false); }
  int64_t bytes() const override { return state_.numel() * 8; }
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t D = of_.config().head_dim;
    return batch_ * of_.config().heads * FenwickState::numbers(tokens, D, D) * 8;
  }

 private:
  Tensor advance(const Token& token, bool read) {
    const NoGrad no_grad;
    const Inputs in = sequences_of(token, batch_, of_.config().heads);
    const ScanInputs of = of_.operands(in);
    const auto row = [](const Variable& x) { return x.value().squeeze(1); };
    const Tensor sums = state_.step({row(of.q), row(of.k), row(of.v), row(of.log_decay)},
                                    row(of_.scales(in.x)), read);
    if (!read) return sums;
    return of_.finished(Variable(sums.to(token.v.dtype()).unsqueeze(1)), in).value().squeeze(1);
  }

  const LogLinear& of_;
  int64_t batch_;
  FenwickState state_;
};

std::unique_ptr<Decoder> LogLinear::make_decoder(int64_t batch) const {
  return std::make_unique<LogLinearDecoder>(*this, batch);
}

using namespace conformance;

const OptionSet plain{{"skip", false}, {"norm", false}, {"gate", false}};

// Makes the scales independent of tokens: softplus(c) = value of each level.
void constant_scales(Variant& variant, const Row& values) {
  const auto L = static_cast<int64_t>(values.size());
  Tensor c = Tensor::empty({H * L}, DType::f64);
  for (int64_t i = 0; i < c.numel(); ++i)
    c.data<double>()[i] = values[i % L] > 0 ? std::log(std::expm1(values[i % L])) : -1000;
  set(variant, {{"scales.weight", Tensor::zeros({H * L, H * D}, DType::f64)}, {"scales.bias", c}});
}

void log_linear_weights(Findings& f) {
  for (const int64_t levels : {6, 3}) {
    const auto variant =
        make_variant("log_linear", extended(plain, {{"levels", levels}}), made(true));
    const Sample x;
    const Variable q(x.q), k(x.k), tokens(x.q.contiguous().reshape({2, N, H * D}));
    const auto of = [&](const char* name) { return Variable(variant->state_dict().at(name)); };
    const Variable step = softplus(linear(tokens, of("step.weight")) + of("step_bias"));
    const Variable scales =
        softplus(of("multiplier") * (linear(tokens, of("scales.weight")) + of("scales.bias")));
    const Variable expected =
        definitions::log_linear(q / 2, k * unsqueeze(step, 3), -(step * exp(of("log_rate"))),
                                reshape(scales, {2, N, H, levels}));
    equal(f, concat_message("levels = ", levels), forward(*variant, x),
          definitions::apply(expected, Variable(x.v)).value(), 1e-12);
  }
}

void log_linear_limits(Findings& f) {
  const auto mamba2 = make_variant("mamba2", {}, made(true));
  const auto with_scales = [&](const Row& values) {
    auto out = make_variant("log_linear", {}, made(true));
    set(*out, mamba2->state_dict());
    constant_scales(*out, values);
    return out;
  };
  equal(f, "scales of 1 and mamba2", *with_scales({1, 1, 1, 1, 1, 1}), *mamba2, 1e-12);
  // With level 0 alone, a token sees only itself: the keys and queries of others do not matter, and
  // mamba2 on each token alone gives the same result.
  const auto alone = with_scales({1, 0, 0, 0, 0, 0});
  const Sample x;
  Variables tokens;
  for (int64_t i = 0; i < N; ++i)
    tokens.emplace_back(
        forward(*mamba2, x.each([&](const Tensor& t) { return t.slice(1, i, i + 1); })));
  equal(f, "level 0 alone", forward(*alone, x), concat(tokens, 1).value(), 2e-14);
}

}  // namespace

Spec log_linear_variant() {
  return make_spec<LogLinearOptions, LogLinear>(
      {.summary = "mamba2 with states of blocks of 1, 2, 4, … tokens, weighed by each query",
       .paper = "Guo et al. 2025, arXiv 2506.04761",
       .cases = {{}, {{"levels", 3}, {"skip", false}, {"norm", false}, {"gate", false}}},
       .evidence = {
           {"fenwick-weights",
            "the weights of mamba2 times the scales of levels, the last of which is shared",
            log_linear_weights},
           {"level-limits",
            "with scales of 1 it is mamba2; with level 0 alone, that of single tokens",
            log_linear_limits}}});
}

}  // namespace longhand::attention
