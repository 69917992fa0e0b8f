// The Mesa layer: for every token, the values so far are regressed on their keys, and the
// regression is evaluated at the query. von Oswald et al. 2025, "MesaNet" (arXiv 2506.05233):
//
//   A_i = e^{g_i} A_(i-1) + β_i k_i k_iᵀ,   B_i = e^{g_i} B_(i-1) + β_i k_i v_iᵀ
//   o_i = B_iᵀ (A_i + diag(λ))⁻¹ q_i,   out_i = norm(o_i) ∘ silu(x_i Wᵀ)
//   g_i = log sigmoid(x_i Uᵀ + u),   β_i = sigmoid(x_i Pᵀ),   λ = λ_0 + softplus(l)
//
// with queries and keys of unit norm, after silu; U and P (H, H D), u (H) and l (H, D) are learned,
// λ_0 is a lower bound, and W is the optional gate. M_i = B_iᵀ (A_i + diag(λ))⁻¹ minimises Σ_j
// e^{g_(j+1) + … + g_i} β_j |v_j - M k_j|² + Σ λ_c |M_c|². The systems are solved by conjugate
// gradients, whose products are scans (ops/ridge_scan.h).
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/ridge_scan.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct MesaOptions : DeltaRuleOptions {
  std::string solve = "cg";
  int64_t steps = 30;
  double lambda_bound = 0.25;
  bool gate = false;

  void describe(OptionVisitor& v) {
    v.choice("solve", solve, {"cg", "exact"},
             "how systems are solved: by conjugate gradients, or by the inverses of all matrices, "
             "for checks");
    v.when(solve == "cg", "solve = \"cg\"", [&] {
      v.integer("steps", steps, {1, 10000}, "the largest number of steps of conjugate gradients");
    });
    v.number("lambda_bound", lambda_bound, NumberRange::above(0), "lower bound λ_0 of λ");
    v.boolean("silu", silu,
              "whether queries and keys pass through silu before they are normalised");
    describe_norm(v, norm);
    v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
  }
  Capabilities capabilities() const {
    Capabilities out = DeltaRuleOptions::capabilities();
    if (solve == "exact") out.time = "N D^3", out.memory = "N D^2";
    return out;
  }
};

class Mesa final : public UnitDeltaAttention {
 public:
  Mesa(const nn::Scope& scope_, const Config& config, const MesaOptions& options)
      : UnitDeltaAttention(scope_, config, options),
        options_(options),
        decay_(scope("decay"), config.width(), config.heads),
        // λ starts at 0.75 above its bound: by default at 1, as in the authors' code.
        lambda_(scope("lambda"), {config.heads, config.head_dim},
                nn::init::constant(std::log(std::expm1(0.75)))) {
    const double H = static_cast<double>(config.heads),
                 width = H * static_cast<double>(config.head_dim);
    add_work({2 * width * H, H});
    if (options.gate) add_gate();
  }

  /// Queries of unit norm.
  DeltaInputs operands(const Inputs& in) const override {
    DeltaInputs out = UnitDeltaAttention::operands(in);
    out.q = out.q * std::sqrt(static_cast<double>(in.q.size(3)));
    return out;
  }
  Tensor advance(State& state, const DeltaOperands<Tensor>& of) const override {
    return ridge_step(state[0], state[1], of, lambda().value(), how());
  }

 private:
  Variable lambda() const { return softplus(lambda_) + options_.lambda_bound; }
  RidgeOptions how() const { return {.steps = options_.steps, .exact = options_.solve == "exact"}; }
  Variable log_decay(const Variable& x) const override {
    return softplus(decay_.forward(x), -1, -1);
  }
  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override {
    const DeltaInputs of =
        padded_operands(in, lengths_from(mask.lengths, pass.tokens.first, in.q.size(1)));
    RidgeOptions options = how();
    options.join = pass.join;
    return finished(ridge_scan(of, lambda(), options), of, in);
  }
  // One read of a scan per step of the solver, whose states do not change, with the vector
  // operations of a step; a scan for the residual and one for the reads of B. Gradients solve a
  // second system.
  Work rule_work(int64_t tokens) const override {
    const auto N = static_cast<double>(tokens), D = static_cast<double>(config().head_dim);
    const Work scan = scan_work(N, D, D, static_cast<double>(size_of(parameter_dtype())));
    if (options_.solve == "exact") {
      const Work all = (D + 1) * scan + Work{{2 * N * D * D * D}, {4 * N * D * D * D}};
      return {all.forward, all.backward,
              3 * N * D * D * static_cast<double>(size_of(parameter_dtype()))};
    }
    const double steps = static_cast<double>(options_.steps),
                 solve = steps * 2 * N * D * (std::min(D + scan_block, N) + 6);
    return {{solve + 2 * scan.forward.flops}, {solve + 2 * scan.backward.flops}, 3 * scan.bytes};
  }

  MesaOptions options_;
  nn::Linear decay_;
  nn::Parameter lambda_;  // l
};

using namespace conformance;

const OptionSet bare_mesa{{"silu", false}, {"norm", false}};

std::unique_ptr<Variant> plain_mesa(const std::string& solve = "cg", double decay = 1) {
  auto out = make_variant("mesa", extended(bare_mesa, {{"solve", solve}}), made(true));
  if (decay == 0)
    set(*out, {{"decay.weight", Tensor::zeros({H, H * D}, DType::f64)},
               {"decay.bias", Tensor::full({H}, 800, DType::f64)}});
  return out;
}

// The operands of the variant, by its formulas: q and k of unit norm, β, g and λ.
struct Read {
  Variable q, k, beta, log_decay, lambda;
};
Read read(const Variant& variant, const Sample& x) {
  const auto of = [&](const char* name) { return Variable(variant.state_dict().at(name)); };
  const Variable tokens(x.q.contiguous().reshape({2, N, H * D}));
  const auto unit = [](const Tensor& t) {
    const Variable y(t);
    return y / sqrt(sum(square(y), {3}, true) + eps_of_length);
  };
  return {unit(x.q), unit(x.k), sigmoid(linear(tokens, of("beta.weight"))),
          softplus(linear(tokens, of("decay.weight"), of("decay.bias")), -1, -1),
          softplus(of("lambda")) + 0.25};
}

void mesa_weights(Findings& f) {
  const Sample x;
  const auto cg = plain_mesa(), exact = plain_mesa("exact");
  const Read in = read(*cg, x);
  const Tensor expected =
      definitions::apply(definitions::mesa(in.q, in.k, in.beta, in.log_decay, in.lambda),
                         Variable(x.v))
          .value();
  equal(f, "conjugate gradients", forward(*cg, x), expected, 1e-12);
  equal(f, "inverses", forward(*exact, x), expected, 1e-12);
  equal(f, "conjugate gradients and inverses", *cg, *exact, 1e-11);
  // For D x D matrices, D steps are exact up to rounding.
  equal(f, "D steps", *make_variant("mesa", extended(bare_mesa, {{"steps", D}}), made(true)),
        *exact, 1e-9);
}

void mesa_limits(Findings& f) {
  const Sample x;
  // A large λ: λ o is linear attention with the decay, as A / λ vanishes.
  const double large = 1e9;
  const auto ridge = plain_mesa();
  set(*ridge, {{"lambda", Tensor::full({H, D}, large, DType::f64)}});
  const Read in = read(*ridge, x);
  const Variable sums = definitions::apply(
      definitions::retention(in.q, in.k * unsqueeze(in.beta, 3), in.log_decay), Variable(x.v));
  equal(f, "λ = 10⁹", (Variable(forward(*ridge, x)) * large).value(), sums.value(), 1e-7);
  // Recursive least squares: without decay (A_i + diag λ)⁻¹ = P_i by rank-one updates, and M_i by
  // its errors: P -= β P k (P k)ᵀ / (1 + β kᵀ P k), M += β (v - M k) (P k)ᵀ with the new P.
  const auto recursive = plain_mesa("cg", 0);
  const Read of = read(*recursive, x);
  Tensor expected = Tensor::empty({N, H, D}, DType::f64);
  for (int64_t h = 0; h < H; ++h) {
    Row P(D * D), M(D * D), Pk(D);
    for (int64_t d = 0; d < D; ++d) P[d * D + d] = 1 / of.lambda.value().at({h, d});
    for (int64_t i = 0; i < N; ++i) {
      const auto at = [&](const Tensor& t, int64_t d) { return t.at({0, i, h, d}); };
      const double beta = of.beta.value().at({0, i, h});
      double quadratic = 0;
      for (int64_t d = 0; d < D; ++d) {
        Pk[d] = 0;
        for (int64_t c = 0; c < D; ++c) Pk[d] += P[d * D + c] * at(of.k.value(), c);
        quadratic += Pk[d] * at(of.k.value(), d);
      }
      const double gain = beta / (1 + beta * quadratic);
      for (int64_t e = 0; e < D; ++e) {
        double error = at(x.v, e);
        for (int64_t d = 0; d < D; ++d) error -= M[e * D + d] * at(of.k.value(), d);
        for (int64_t d = 0; d < D; ++d) M[e * D + d] += gain * error * Pk[d];
      }
      for (int64_t d = 0; d < D; ++d)
        for (int64_t c = 0; c < D; ++c) P[d * D + c] -= gain * Pk[d] * Pk[c];
      for (int64_t e = 0; e < D; ++e) {
        double o = 0;
        for (int64_t d = 0; d < D; ++d) o += M[e * D + d] * at(of.q.value(), d);
        expected.data<double>()[(i * H + h) * D + e] = o;
      }
    }
  }
  equal(f, "recursive least squares", forward(*recursive, x).select(0, 0), expected, 1e-13);
}

// The keys are unit vectors e_c in turn, without decay: A is diagonal, and channel c of the query
// reads the mean of the values of e_c, weighted by β and shrunk by λ: Σ β v / (Σ β + λ_c).
void mesa_orthogonal(Findings& f) {
  const auto variant = plain_mesa("cg", 0);
  Sample x;
  x.k = Tensor::zeros(x.k.shape(), DType::f64);
  for (int64_t i = 0; i < N; ++i) x.k.slice(1, i, i + 1).slice(3, i % D, i % D + 1).fill(1e6);
  const Read of = read(*variant, x);
  Tensor expected = Tensor::empty({N, D}, DType::f64);  // of head 1 of sample 1
  for (int64_t i = 0; i < N; ++i)
    for (int64_t e = 0; e < D; ++e) {
      double o = 0;
      for (int64_t c = 0; c < D; ++c) {
        double weight = of.lambda.value().at({1, c}), mean = 0;
        for (int64_t j = c; j <= i; j += D) {
          const double beta = of.beta.value().at({1, j, 1});
          weight += beta, mean += beta * x.v.at({1, j, 1, e});
        }
        o += of.q.value().at({1, i, 1, c}) * mean / weight;
      }
      expected.data<double>()[i * D + e] = o;
    }
  equal(f, "means of values", forward(*variant, x).select(0, 1).select(1, 1), expected, 1e-13);
}

}  // namespace

Spec mesa_variant() {
  return make_spec<MesaOptions, Mesa>(
      {.summary = "the regression of all earlier values on their keys, with a decay, solved for "
                  "each token",
       .paper = "von Oswald et al. 2025, arXiv 2506.05233",
       .cases = {{},
                 {{"silu", false}, {"norm", false}, {"gate", true}, {"lambda_bound", 0.5}},
                 {{"solve", "exact"}, {"norm", false}},
                 {{"steps", 8}, {"gate", true}}},
       .evidence = {{"regression-weights",
                     "the definition, by conjugate gradients in 30 and in D steps and by inverses",
                     mesa_weights},
                    {"regression-limits",
                     "a large λ gives linear attention with a decay; without decay it is recursive "
                     "least squares",
                     mesa_limits},
                    {"orthogonal-keys", "orthogonal keys give shrunk means of their values",
                     mesa_orthogonal}}});
}

}  // namespace longhand::attention
