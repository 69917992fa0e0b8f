// Performer (FAVOR+): random features whose inner products estimate the softmax kernel, and related
// kernels. Choromanski et al. 2020 (arXiv 2009.14794), with rows w_l of W (m, D) drawn from
// N(0, I), orthogonal within blocks. The features are in features/, each with its formula:
//
//   exponential.cpp    positive, hyperbolic; exp without eps
//   optimal.cpp        optimal: those of least variance
//   random_features.h  trigonometric, trigonometric_bias: signed
//   elementwise.cpp    relu, gelu, square, exp: other kernels ("generalised attention")
//
// With `balance`, queries are multiplied and keys divided by ψ_c = (mean_j k_jc² / mean_i
// q_ic²)^(1/4) in each channel c: q·k is unchanged, and the norms that determine the variance are
// minimal. Likhosherstov et al. 2023 (arXiv 2302.00787), "SADERF".
//
// With draw = "learned", W is trained and φ are features of a kernel of their own. Exponentials are
// kept as logarithms until common factors have cancelled (feature_attention.cpp), so that no eps is
// needed at any norm.
//
// With eps > 0 an exponential estimator computes exp(t - max) + eps as reference implementations
// do, for comparison. The constants then no longer cancel, and norms above about 2 sqrt(D) make
// attention uniform.
#include "longhand/attention/bases/feature_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/features/random_features.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/linear_attention.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {
namespace {

struct PerformerOptions {
  std::string kernel = "positive";
  RandomFeatureOptions projection;
  double eps = 0, spread = 1;
  bool balance = false;
  GuardOptions guard;

  bool estimates_positive() const { return kernel == "positive" || kernel == "hyperbolic"; }
  bool trigonometric() const { return kernel == "trigonometric" || kernel == "trigonometric_bias"; }
  // E φ(q)·φ(k) = e^(q̂·k̂), so that changes that preserve q·k affect only the variance.
  bool estimates_softmax() const {
    return (estimates_positive() || trigonometric() || kernel == "optimal") &&
           !projection.learned();
  }
  bool has_signs() const { return trigonometric() || kernel == "gelu"; }
  // f(W x) + eps for some f: another kernel.
  bool generalized() const { return kernel == "relu" || kernel == "gelu" || kernel == "square"; }
  // Computed as in reference implementations.
  bool reference() const { return estimates_positive() && eps > 0; }

  void describe(OptionVisitor& v) {
    v.choice("kernel", kernel,
             {"positive", "hyperbolic", "optimal", "trigonometric", "trigonometric_bias", "relu",
              "exp", "gelu", "square"},
             "type of features: estimators of the softmax kernel, or element-wise functions of the "
             "projection");
    projection.describe(v);
    eps = generalized() ? 1e-3 : 0;
    v.when(kernel == "optimal", "kernel = \"optimal\"", [&] {
      v.number("spread", spread, {0, 1e3},
               "standard deviation of the entries of q and k for which the variance is least");
    });
    v.when(estimates_softmax(), "an estimator of the softmax kernel whose draw is not learned",
           [&] {
             v.boolean(
                 "balance", balance,
                 "whether the channels of each sequence are scaled such that queries and keys have "
                 "the same mean squares; not causal");
           });
    v.when(!trigonometric() && kernel != "optimal",
           "a kernel that is neither trigonometric nor optimal", [&] {
             v.number("eps", eps, {0},
                      "added to the features; above 0, positive and hyperbolic are computed as in "
                      "reference implementations",
                      "0; 1e-3 with relu, gelu or square");
           });
    v.when(has_signs(), "kernel = \"trigonometric\", \"trigonometric_bias\" or \"gelu\"",
           [&] { guard.describe(v); });
  }

  Capabilities capabilities() const {
    // Without eps, a row whose features are all 0 has no weights.
    const bool may_vanish = generalized() && eps == 0;
    return {.random = !projection.learned(),
            .averages = guard.guard == "none" && !may_vanish,
            .separate_queries = !balance,
            .signed_weights = has_signs(),
            .causal = !balance,
            .causal_reason = balance ? "balanced channels depend on all queries and keys" : "",
            .decodes = !reference(),
            .needs = !reference()                   ? Needs::sums
                     : projection.heads == "shared" ? Needs::heads
                                                    : Needs::tokens,
            .time = "N m D",
            .memory = "N m",
            .state = projection.state(kernel == "trigonometric_bias")};
  }
};

// Returns the running maximum, over j <= i of x_j, along axis 1 of x (B, N, H, 1).
Variable so_far(const Variable& x) {
  const int64_t H = x.size(2), NH = x.size(1) * H;
  Tensor index = Tensor::zeros(x.shape(), DType::i32);
  if (is_dry()) return gather(x, 1, index);
  const auto values = x.value().to_vector<double>();
  for (int64_t b = 0; b < x.size(0); ++b) {
    int32_t* const best = index.data<int32_t>() + b * NH;
    const double* const at = values.data() + b * NH;
    for (int64_t i = H; i < NH; ++i) {
      const int32_t before = best[i - H];
      best[i] = at[i] > at[before * H + i % H] ? static_cast<int32_t>(i / H) : before;
    }
  }
  return gather(x, 1, index);
}

std::unique_ptr<FeatureMap> map_of(const PerformerOptions& o, const MapScope& scope) {
  if (o.trigonometric())
    return std::make_unique<TrigonometricMap>(scope, o.projection, o.kernel == "trigonometric_bias",
                                              o.guard);
  if (o.kernel == "optimal") return optimal_map(scope, o.projection, o.spread);
  if (o.estimates_positive() || (o.kernel == "exp" && o.eps == 0))
    return exponential_map(scope, o.projection, o.kernel == "hyperbolic", o.kernel != "exp");
  return elementwise_map(scope, o.projection, o.kernel, o.eps, o.guard);
}

class Performer final : public FeatureAttention {
 public:
  Performer(const nn::Scope& scope_, const Config& config, const PerformerOptions& options)
      : FeatureAttention(scope_, config,
                         [&](const MapScope& scope) { return map_of(options, scope); }),
        options_(options) {}

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Inputs in = options_.balance ? balanced(inputs, pass) : inputs;
    return options_.reference() ? attend_as_references(in.q, in.k, in.v, mask)
                                : FeatureAttention::attend(in, mask, pass);
  }

  // ψ q and k / ψ. Channels that are 0 throughout stay 0.
  static Inputs balanced(const Inputs& in, const nn::Pass& pass) {
    const auto mean_square = [&](const Variable& x) {
      if (!pass.join) return mean(square(x), {1}, true) + 1e-30;
      return pass.join->sum(sum(square(x), {1}, true)) / static_cast<double>(pass.tokens.of) +
             1e-30;
    };
    const Variable psi = sqrt(sqrt(mean_square(in.k) / mean_square(in.q)));  // (B, 1, H, D)
    return {in.q * psi, in.k / psi, in.v, in.x};
  }

  // With u = w_l·x̂: exp(u - |x̂|²/2 - max u) + eps, where the maximum is over the features of each
  // query, and over the features and tokens of the keys (causal: c_i over tokens up to i). The eps
  // of the keys adds eps sum_l φ(q_i)_l sum_j [v_j, 1] to the sums of row i.
  Variable attend_as_references(const Variable& q, const Variable& k, const Variable& v,
                                const Mask& mask) const {
    const auto& W = static_cast<const RandomFeatureMap&>(map());
    const double scale = W.x_scale(), eps = options_.eps;
    const auto u = [&, both = options_.kernel == "hyperbolic"](const Variable& x) {
      return exponents(W.project(x, scale), both);
    };
    const auto phi = [&](const Variable& x, const Variable& ux, const Variable& c) {
      return exp(ux - half_square(x, scale) - c);
    };
    const Variable uq = u(q), uk = u(k);
    const Variable fq = phi(q, uq, max(uq, 3, true)) + eps;
    Variable c = max(uk, 3, true);  // (B, M, H, 1)
    if (config().causal) {
      c = so_far(c);
      const Variable fixed = c.detach();  // a constant; exp(fixed - c) below has the gradient of c
      const Variable sums = scan({fq, phi(k, uk, fixed), v, log_decay_of_scale(squeeze(fixed, 3))},
                                 nullptr, {.final_state = false})
                                .out;
      const Variable v1 = concat({v, Variable(Tensor::full(c.shape(), 1, v.dtype()))}, 3);
      return normalised(sums * exp(fixed - c) + eps * sum(fq, {3}, true) * cumsum(v1, 1));
    }
    const Tensor real = mask.lengths.defined() ? real_tokens(mask.lengths, k.size(1)) : Tensor();
    if (real.defined()) c = where(real, c, never);
    c = max(c, 1, true);
    if (real.defined()) c = where(not_empty(mask.lengths), c, 0.0);
    return linear_attention(fq, phi(k, uk, c) + eps, v, {.key_lengths = mask.lengths});
  }

  PerformerOptions options_;
};

}  // namespace

Spec performer_variant() {
  return make_spec<PerformerOptions, Performer>(
      {.summary = "positive random features of the softmax kernel, and others",
       .paper = "Choromanski et al. 2020, arXiv 2009.14794",
       .cases =
           {{{"features", 20}},
            {{"features", 20}, {"kernel", "hyperbolic"}, {"draw", "iid"}, {"heads", "per_head"}},
            {{"features", 20}, {"kernel", "positive"}, {"draw", "givens"}, {"norm", "sqrt_d"}},
            {{"features", 20}, {"kernel", "trigonometric"}},
            {{"features", 20}, {"kernel", "trigonometric_bias"}},
            {{"features", 20}, {"kernel", "relu"}},
            {{"features", 20}, {"kernel", "exp"}},
            {{"features", 20}, {"kernel", "gelu"}, {"redraw_interval", 1}},
            {{"features", 20}, {"kernel", "square"}, {"redraw_interval", 0}},
            {{"features", 20}, {"eps", 1e-4}},
            {{"features", 20}, {"kernel", "optimal"}, {"spread", 0.7}},
            {{"features", 20}, {"balance", true}},
            {{"features", 20}, {"kernel", "optimal"}, {"balance", true}},
            {{"features", 20}, {"draw", "learned"}},
            {{"features", 20},
             {"draw", "learned"},
             {"kernel", "hyperbolic"},
             {"heads", "per_head"}},
            {{"features", 20}, {"draw", "learned"}, {"kernel", "optimal"}},
            {{"features", 20}, {"draw", "learned"}, {"kernel", "relu"}}},
       .evidence = conformance::performer_evidence(),
       .rate = -0.5,
       .replaced = {
           {"projection", "efficient attention is a separate variant: type = \"efficient\""}}});
}

}  // namespace longhand::attention
