// Differential attention. Ye et al. 2024 (arXiv 2410.05258), eq. 1-3. Queries and keys of a head
// are split into halves Q1, Q2 and K1, K2 of D/2 channels:
//
//   O = (softmax(Q1 K1ᵀ / sqrt(D/2)) - λ softmax(Q2 K2ᵀ / sqrt(D/2))) V
//   λ = e^(λq1·λk1) - e^(λq2·λk2) + λ_init,  λ_init = 0.8 - 0.6 e^(-0.3 l) in layer l = 0, 1, …
//   out = (1 - λ_init) norm(O)
//
// with vectors λq1, … shared by all heads; norm is a root mean square norm per head, with a learned
// weight. The halves are the even and the odd channels modulo D/2, as rotary positions rotate pairs
// of channels D/2 apart; they have equal sizes if D is a multiple of 4. Both softmaxes are one call
// of softmax_attention() with 2 H heads: [Q1, 0] and [0, Q2], which share [K1, K2] and V.
#include <algorithm>
#include <cmath>
#include <optional>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/ring_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct DifferentialOptions {
  double lambda_init = 0, dropout = 0;
  bool norm = true;

  void describe(OptionVisitor& v) {
    v.number("lambda_init", lambda_init, {0, 1}, "λ_init; 0: 0.8 - 0.6 e^(-0.3 l) in layer l");
    v.boolean("norm", norm,
              "whether the result of a head is divided by its root mean square, with a learned "
              "weight, and multiplied by 1 - λ_init");
    v.number("dropout", dropout, NumberRange::fraction(),
             "dropout probability for the weights of both softmaxes");
  }
  Capabilities capabilities() const {
    return {.averages = false,
            .linear = !norm,
            .signed_weights = true,
            .causal = true,
            .decodes = true,
            .needs = Needs::key_blocks,
            .time = "N M D",
            .memory = "N"};
  }
};

class Differential final : public Variant {
 public:
  Differential(const nn::Scope& scope_, const Config& config, const DifferentialOptions& options)
      : Variant(scope_, config),
        initial_(options.lambda_init != 0
                     ? options.lambda_init
                     : 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(config.layer))),
        dropout_(options.dropout),
        lambda_(scope("lambda"), {4, std::max<int64_t>(1, config.head_dim / 2)},
                nn::init::normal(0.1)),
        halves_(Tensor::empty({2, config.head_dim}, DType::f64)) {
    // Rotary positions, for even D, rotate channels d and d + D/2.
    const int64_t D = config.head_dim, of_pairs = D % 2 == 0 ? D / 2 : D;
    if (options.norm) norm_.emplace(scope("norm"), Shape{D}, nn::init::ones());
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t d = 0; d < D; ++d)
        halves_.data<double>()[half * D + d] = d % of_pairs % 2 == half;
    halves_ = halves_.to(parameter_dtype());
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<HalvesDecoder>(*this, batch);
  }

  // Twice the work of softmax.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double seen = config().causal ? M / 2 : M;
    return 2 * H * softmax_work(N * seen, D, 4 * N + 2 * N * D * bytes);
  }

 protected:
  bool takes_all(const Mask& mask) const override { return !mask.lengths.defined(); }

 private:
  // [q1, 0] and [0, q2] of each head, for q (…, H, D): (…, 2 H, D).
  Variable apart(const Variable& q) const {
    const int axis = static_cast<int>(q.rank()) - 2;
    Shape shape = q.shape();
    shape[axis] *= 2;
    return reshape(unsqueeze(q, axis + 1) * Variable(halves_), shape);
  }
  // Combines the results of both softmaxes (…, 2 H, D) into the variant's (…, H, D).
  Variable joined(const Variable& both) const {
    const int axis = static_cast<int>(both.rank()) - 2;
    const int64_t H = both.size(axis) / 2;
    const auto of_half = [&](int64_t half) { return slice(both, axis, half, 2 * H, 2); };
    const auto power = [&](int64_t row) {
      return exp(sum(select(lambda_, 0, row) * select(lambda_, 0, row + 1), {0}, true));
    };
    const Variable lambda = power(0) - power(2) + initial_;
    const Variable out = of_half(0) - lambda * of_half(1);
    return norm_ ? rms_norm(out, *norm_, 1e-5) * (1 - initial_) : out;
  }
  double scale() const { return std::sqrt(2 / static_cast<double>(config().head_dim)); }

  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override {
    SoftmaxAttentionOptions options{.scale = scale(),
                                    .causal = config().causal,
                                    .key_lengths = mask.lengths,
                                    .query_lengths = mask.lengths,
                                    .dropout = weight_dropout(dropout_, pass)};
    options.dropout.section.first *= 2, options.dropout.section.of *= 2;
    const Variable q = apart(in.q);
    return joined(pass.join ? ring_attention(q, in.k, in.v, options, pass.join)
                            : softmax_attention(q, in.k, in.v, options));
  }

  // A cache of keys and values, to which both halves of a query attend.
  class HalvesDecoder final : public Decoder {
   public:
    HalvesDecoder(const Differential& variant, int64_t batch) : variant_(variant) {
      Config config = variant.config();
      config.heads *= 2;
      cache_ = make_cache_decoder(batch, config, {.scale = variant.scale()});
    }
    Tensor step(const Token& token) override {
      const NoGrad no_grad;
      const Tensor both = cache_->step(variant_.apart(Variable(token.q)).value(), token.k, token.v);
      return variant_.joined(Variable(both)).value();
    }
    void append(const Token& token) override { cache_->append(token); }
    int64_t bytes() const override { return cache_->bytes(); }
    int64_t bytes_after(int64_t tokens) const override { return cache_->bytes_after(tokens); }
    Traffic traffic() const override { return cache_->traffic(); }

   private:
    const Differential& variant_;
    std::unique_ptr<Decoder> cache_;
  };

  double initial_, dropout_;           // λ_init
  nn::Parameter lambda_;               // λq1, λk1, λq2, λk2
  std::optional<nn::Parameter> norm_;  // (D)
  Tensor halves_;                      // (2, D): 1 at the channels of each half
};

using namespace conformance;

// Sets λ of a variant with λ_init = 0.2.
void set_lambda(Variant& variant, double lambda) {
  Tensor x = Tensor::zeros({4, D / 2}, DType::f64);
  const double power = lambda + 0.8;  // e^(λq1·λk1), with λq2·λk2 = 0
  x.data<double>()[0] = std::log(power), x.data<double>()[D / 2] = 1;
  set(variant, {{"lambda", x}});
}

void differential_limits(Findings& f) {
  const double lambda = 0.37;
  for (const bool causal : {false, true}) {
    const auto plain = make_variant("differential", {{"norm", false}}, made(causal));
    const Tensor seen = definitions::visible(N, N, {.causal = causal});
    const Sample x;
    for (const double l : {lambda, 0.0}) {
      set_lambda(*plain, l);
      equal(f, l == 0 ? "λ = 0, and softmax attention of the first halves" : "its definition",
            forward(*plain, x),
            definitions::apply(
                l == 0 ? definitions::softmax(definitions::half(Variable(x.q), 0),
                                              definitions::half(Variable(x.k), 0), seen)
                       : definitions::differential(Variable(x.q), Variable(x.k), l, seen),
                Variable(x.v))
                .value(),
            1e-12);
    }
    // Equal halves: (1 - λ) times softmax attention with all channels, whose dot products are twice
    // as large, divided by sqrt(2) times as much.
    const auto twice = [](const Tensor& t) {
      Tensor out = t.clone();
      for (int64_t i = 0; i < out.numel(); i += 2)
        out.data<double>()[i + 1] = out.data<double>()[i];
      return out;
    };
    Sample same = x;
    same.q = twice(x.q), same.k = twice(x.k);
    set_lambda(*plain, lambda);
    const auto softmax = make_variant(
        "softmax", {{"scale", 1 / std::sqrt(2.0 * static_cast<double>(D))}}, made(causal));
    equal(f, "equal halves, and 1 - λ times softmax attention", forward(*plain, same),
          affine(Variable(forward(*softmax, same)), 1 - lambda).value(), 1e-12);
    // The norm.
    const auto whole = make_variant("differential", {}, made(causal));
    set_lambda(*whole, lambda);
    equal(f, "the norm", forward(*whole, x),
          affine(rms_norm(Variable(forward(*plain, x)), {}, 1e-5), 0.8).value(), 1e-12);
  }
}

}  // namespace

Spec differential_variant() {
  return make_spec<DifferentialOptions, Differential>(
      {.summary = "the difference of two softmax attentions, with half of the channels each",
       .paper = "Ye et al. 2024, arXiv 2410.05258",
       .cases = {{}, {{"norm", false}, {"lambda_init", 0.5}, {"dropout", 0.3}}},
       .evidence = {{"limits",
                     "λ = 0 is softmax attention of the first halves, equal halves 1 - λ times it",
                     differential_limits}}});
}

}  // namespace longhand::attention
