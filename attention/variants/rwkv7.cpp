// The generalised delta rule of RWKV-7: the vector that reads the state before a write, the one
// that removes from it, and the key of a new value differ, and each channel has its own decay and
// learning rate. Peng et al. 2025 (arXiv 2503.14456), eq. 11-22, in the layout D x D of keys and
// values:
//
//   S_i = diag(e^{g_i}) S_(i-1) - (a_i ∘ κ_i) (S_(i-1)ᵀ κ_i)ᵀ + k'_i v_iᵀ
//   g_i = -e^(-1/2) σ(tanh(x_i D_g) U_g + b),   a_i = σ(x_i D_a U_a + c)
//   κ_i = k_i ∘ ξ, divided by its norm,         k'_i = k_i ∘ (1 + (a_i - 1) ∘ α)
//
//   out_i = (norm(S_iᵀ q_i / sqrt(D)) + (q_i · (ρ ∘ k'_i)) v_i) ∘ (σ(x_i D_o) U_o)
//
// with a layer norm per head with weights (H, D), and b, c, ξ, α and ρ learned for each channel.
// With `negative`, what is removed is multiplied by c = 1 + e^(-e^(-1/2)): no decay is below c - 1,
// so that eigenvalues of transitions are at least -1. Mixing a token with the one before it, or
// values with those of the first layer, is not part of the variant.
//
// delta_scan() reads after the decay, therefore with κ_i e^{-g_i}: e^{-g} is at most e^0.61.
#include <cmath>
#include <optional>

#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/rwkv7.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct Rwkv7Options {
  bool negative = false, norm = true, bonus = true, gate = true;
  int64_t rank = 1;

  static Rwkv7Options defaults(const Config& config) { return {.rank = config.head_dim}; }
  void describe(OptionVisitor& v) {
    describe_negative(v, negative);
    v.boolean("norm", norm, "whether the reads of a head pass through a layer norm");
    v.boolean("bonus", bonus, "whether a token's own value is added, by the agreement of q and k");
    v.boolean("gate", gate, "whether the result is gated by σ(x D_o) U_o");
    v.integer("rank", rank, {1, 1 << 20},
              "rank of the maps from tokens to decays, learning rates and gates",
              "the dimension of a head");
  }
  Capabilities capabilities() const { return recurrence_capabilities(!norm); }
};

const double least_decay = std::exp(-std::exp(-0.5));

// The initial decay rates of a layer's channels range from slow to fast, as in the authors' code,
// with more slow ones in later layers.
nn::Init initial_decays(const Config& config) {
  const double depth =
      config.layers > 1 ? static_cast<double>(config.layer) / static_cast<double>(config.layers - 1)
                        : 0;
  return [depth](Tensor& b, const Generator&) {
    const int64_t n = b.numel();
    Tensor values = Tensor::empty(b.shape(), DType::f64);
    for (int64_t i = 0; i < n; ++i) {
      const double place = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0;
      values.data<double>()[i] = -6.5 + 5 * std::pow(place, 0.85 + std::sqrt(depth));
    }
    copy_into(b, values.to(b.dtype()));
  };
}

// x D U: a map from the tokens to the channels of all heads, of rank r. D starts as zeros, so that
// initially only the parameters of the channels matter.
struct Map {
  nn::Linear down, up;

  Map(const nn::Scope& down_scope, const nn::Scope& up_scope, const Config& config, int64_t rank)
      : down(down_scope, config.width(), rank, false, nn::init::zeros()),
        up(up_scope, rank, config.width(), false) {}
};

class Rwkv7 final : public DeltaAttention {
 public:
  Rwkv7(const nn::Scope& scope_, const Config& config, const Rwkv7Options& options)
      : DeltaAttention(scope_, config),
        negative_(options.negative),
        rank_(options.rank),
        decay_(scope("decay_down"), scope("decay_up"), config, rank_),
        rate_(scope("rate_down"), scope("rate_up"), config, rank_),
        decay_bias_(scope("decay_bias"), channels(), initial_decays(config)),
        rate_bias_(scope("rate_bias"), channels(), nn::init::zeros()),
        removal_(scope("removal"), channels(), nn::init::constant(0.85)),
        replacement_(scope("replacement"), channels(), nn::init::ones()) {
    if (options.norm) {
      norm_weight_.emplace(scope("norm_weight"), channels(), nn::init::ones());
      norm_bias_.emplace(scope("norm_bias"), channels(), nn::init::zeros());
    }
    if (options.bonus) bonus_.emplace(scope("bonus"), channels(), nn::init::zeros());
    if (options.gate) gate_.emplace(scope("gate_down"), scope("gate_up"), config, rank_);
  }

  DeltaInputs operands(const Inputs& in) const override {
    const Variable decays = linear(tanh(decay_.down.forward(in.x)), decay_.up.weight,
                                   reshape(decay_bias_, {decay_.up.weight.size(0)})),
                   rates = low_rank_map(in.x, rate_.down.weight, rate_.up.weight, rate_bias_);
    DeltaInputs of = rwkv7_operands({.k = in.k,
                                     .decay = reshape(decays, in.q.shape()),
                                     .rate = reshape(rates, in.q.shape()),
                                     .removal = removal_,
                                     .replacement = replacement_},
                                    eps_of_length);
    of.q = in.q;
    of.v = in.v;
    if (negative_) {
      const Shape& s = in.q.shape();
      of.beta = Variable(Tensor::full({s[0], s[1], s[2]}, 1 + least_decay, in.q.dtype()));
    }
    return of;
  }

  Variable finished(const Variable& reads, const DeltaInputs& of, const Inputs& in) const override {
    const double D = static_cast<double>(reads.size(3));
    Rwkv7Reads with;
    if (bonus_) with = {{}, in.q, of.write, in.v, {}, {}, {}, *bonus_};
    if (gate_)
      with.gate = reshape(gate_->up.forward(sigmoid(gate_->down.forward(in.x))), reads.shape());
    // The norm of o / sqrt(D) with eps is that of o with D eps.
    if (norm_weight_) with.weight = *norm_weight_, with.bias = *norm_bias_;
    with.reads = norm_weight_ ? reads : reads / std::sqrt(D);
    return rwkv7_result(with, 1e-5 * D);
  }

  // The scan and the products of the maps. Gradients recompute two exponentials per channel. In
  // memory: logits of rates, results of tanh and σ in the maps, four operands, reads and gates.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double width = H * D, r = static_cast<double>(rank_), maps = gate_ ? 2 : 1;
    // All maps but that of rates have a nonlinearity between their two products.
    const double products = N * (maps * 4 * width * r + low_rank_flops(width, r));
    const double exponentials = N * (3 * width + r * (gate_ ? 2 : 1));
    return H * delta_work(queries, config().head_dim, parameter_dtype(), true) +
           Work{{products, exponentials}, {2 * products, 2 * N * width}, 9 * N * width * bytes};
  }

 private:
  Shape channels() const { return {config().heads, config().head_dim}; }

  bool negative_;
  int64_t rank_;
  Map decay_, rate_;
  nn::Parameter decay_bias_, rate_bias_, removal_, replacement_;  // b, c, ξ, α: (H, D)
  std::optional<nn::Parameter> norm_weight_, norm_bias_, bonus_;  // (H, D); bonus: ρ
  std::optional<Map> gate_;
};

using namespace conformance;

void rwkv7_limits(Findings& f) {
  const OptionSet core{{"norm", false}, {"bonus", false}, {"gate", false}, {"rank", 2}};
  const auto rule = make_variant("rwkv7", core, made(true)),
             gla = make_variant(
                 "gla", {{"norm", false}, {"gate", false}, {"decay_rank", 2}, {"temperature", 1.0}},
                 made(true));
  // -e^(-1/2) σ(b) = log σ(c). A rate of 0 removes nothing.
  const Tensor b = normal({H, D}, 5);
  Tensor c = Tensor::zeros({H * D}, DType::f64);
  for (int64_t i = 0; i < H * D; ++i) {
    const double g = -std::exp(-0.5) / (1 + std::exp(-b.data<double>()[i]));
    c.data<double>()[i] = g - std::log(-std::expm1(g));
  }
  set(*rule, {{"decay_bias", b},
              {"rate_bias", Tensor::full({H, D}, -800, DType::f64)},
              {"replacement", Tensor::zeros({H, D}, DType::f64)}});
  set(*gla, {{"decay.weight_in", Tensor::zeros({2, H * D}, DType::f64)}, {"decay.bias", c}});
  equal(f, "without removal, and gla", *rule, *gla, 1e-12);

  // Keys of unit norm and equal ξ, 0.85 at first, with gradients: they depend on how keys are
  // normalised, so that only those of q and v are compared.
  const auto delta =
      make_variant("deltanet", {{"silu", false}, {"norm", false}, {"negative", true}}, made(true));
  set(*delta, {{"beta.weight", Tensor::zeros({H, H * D}, DType::f64)}});  // β = 1
  set(*rule, {{"decay_bias", Tensor::full({H, D}, -800, DType::f64)},
              {"rate_bias", Tensor::full({H, D}, 800, DType::f64)}});
  Sample x;
  const auto unit = [](const Tensor& t) {
    const Variable v(t);
    return (v / sqrt(sum(square(v), {3}, true))).value();
  };
  x.q = unit(x.q);
  x.k = unit(x.k);
  const Outcome one = run(*rule, x), two = run(*delta, x);
  const std::string what = "unit keys and deltanet";
  f.measured(what, " to ",
             std::max(near(f, what, one.out, two.out, 1e-5), near(f, what, one.dv, two.dv, 1e-5)));

  // Equal channels and keys of one direction u: κ = ±u, and u's row of the state is multiplied by
  // the eigenvalue e^g - c a, which is negative here.
  for (const bool negative : {false, true}) {
    const auto line = make_variant("rwkv7", extended(core, {{"negative", negative}}),
                                   {.heads = 1, .dim = D, .max_length = N, .causal = true});
    const double g = -std::exp(-0.5) / (1 + std::exp(-0.4)), a = 1 / (1 + std::exp(-1.5)),
                 eigenvalue = std::exp(g) - (negative ? 1 + least_decay : 1) * a;
    set(*line, {{"decay_bias", Tensor::full({1, D}, 0.4, DType::f64)},
                {"rate_bias", Tensor::full({1, D}, 1.5, DType::f64)},
                {"replacement", Tensor::full({1, D}, 0.5, DType::f64)}});
    // Large enough for the eps that is added to squared norms not to matter.
    const Tensor q = normal({1, N, 1, D}, 6),
                 k = affine(Variable(normal({1, N, 1, 1}, 7).expand(q.shape())), 1e6).value();
    const Tensor found = weights(*line, q, k);
    double most = 0;
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j < N; ++j) {
        double of_pair = 0;
        for (int64_t d = 0; d < D; ++d) of_pair += q.at({0, i, 0, d}) * k.at({0, j, 0, d}) / 2;
        const double expected = j <= i ? of_pair * (1 + (a - 1) * 0.5) *
                                             std::pow(eigenvalue, static_cast<double>(i - j))
                                       : 0;
        most = std::max(most, std::abs(found.at({i, j}) - expected) / 1e6);
      }
    f.expect(most <= 1e-9, "keys of one direction: weights differ from their closed form by ",
             most);
    f.measured("keys of one direction to ", most);
  }
}

// Channel 0 has the eigenvalue u - (1 + u) = -1 at bit 1, u the least decay, and e^0 = 1 at bit 0.
void rwkv7_parity(Findings& f) {
  const Tensor by_bit = Tensor::from<double>({400, -400}, {1, 2}),
               up = Tensor::full({2, 1}, 400, DType::f64);
  follows_parity(
      f, "rwkv7",
      {{"negative", true}, {"norm", false}, {"bonus", false}, {"gate", false}, {"rank", 1}},
      {{"decay_down.weight", by_bit},
       {"decay_up.weight", up},
       {"decay_bias", Tensor::zeros({1, 2}, DType::f64)},
       {"rate_down.weight", by_bit},
       {"rate_up.weight", up},
       {"replacement", Tensor::zeros({1, 2}, DType::f64)}});
}

}  // namespace

Spec rwkv7_variant() {
  return make_spec<Rwkv7Options, Rwkv7>(
      {.summary = "a delta rule with decays and learning rates per channel, and keys of its own",
       .paper = "Peng et al. 2025, arXiv 2503.14456",
       .cases = {{},
                 {{"norm", false}, {"bonus", false}, {"gate", false}},
                 {{"negative", true}, {"norm", false}, {"rank", 2}}},
       .evidence = {{"limits",
                     "without removal it is gla with the same decays; with unit keys, no decay, "
                     "equal ξ and rates of 1 it is deltanet; for equal channels and keys of one "
                     "direction its weights have a closed form",
                     rwkv7_limits},
                    {"parity", "with negative eigenvalues the state follows the parity of bits",
                     rwkv7_parity}}});
}

}  // namespace longhand::attention
