// DeltaProduct: n delta rules per token, whose transition is a product of n generalised Householder
// matrices. Siems et al. 2025 (arXiv 2502.10297), eq. 6, with the decay of gated_deltanet:
//
//   S_(i,0) = e^{g_i} S_(i-1),   S_(i,j) = S_(i,j-1) + β_ij k_ij (v_ij - S_(i,j-1)ᵀ k_ij)ᵀ,  j = 1 … n
//   S_i = S_(i,n),   o_i = S_iᵀ q_i / sqrt(D),   out_i = norm(o_i) ∘ silu(x_i W)
//
// The first key, value and β are those of gated_deltanet; the others are k_ij = x_i W_j, v_ij = x_i
// V_j and β_ij = sigmoid(x_i P_j). Keys have unit norm, after silu. n = 1 is gated_deltanet.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct DeltaProductOptions : GatedDeltaOptions {
  int64_t householders = 2;

  void describe(OptionVisitor& v) {
    v.integer("householders", householders, {1, 64},
              "number n of delta rules per token, applied one after another");
    GatedDeltaOptions::describe(v);
  }
  Capabilities capabilities() const {
    Capabilities out = DeltaRuleOptions::capabilities();
    out.linear = out.linear && householders == 1;  // further values come from the tokens
    return out;
  }
};

class DeltaProduct final : public GatedDeltaAttention {
 public:
  DeltaProduct(const nn::Scope& scope_, const Config& config, const DeltaProductOptions& options)
      : GatedDeltaAttention(scope_, config, options, options.householders),
        more_(options.householders - 1) {
    if (more_ == 0) return;
    const int64_t H = config.heads, width = H * config.head_dim;
    keys_.emplace(scope("keys"), width, more_ * width, false);
    values_.emplace(scope("values"), width, more_ * width, false);
    strengths_.emplace(scope("strengths"), width, more_ * H, false);
    add_work({static_cast<double>(more_ * 2 * width * (2 * width + H)), 0});
  }

  DeltaInputs operands(const Inputs& in) const override {
    DeltaInputs out = GatedDeltaAttention::operands(in);
    if (more_ == 0) return out;
    const int64_t B = in.q.size(0), N = in.q.size(1), H = in.q.size(2), D = in.q.size(3);
    // The first step of each token, and the others.
    const auto with = [&](const Variable& first, const Variable& others) {
      const Variable all =
          concat({unsqueeze(first, 2), reshape(others, first.shape().with_axis(2, more_))}, 2);
      Shape shape = first.shape();
      shape[1] *= more_ + 1;
      return reshape(all, shape);
    };
    const Variable keys = reshape(keys_->forward(in.x), {B, N * more_, H, D});
    out.k = with(out.k, unit_keys(keys));
    out.v = with(out.v, values_->forward(in.x));
    out.beta = with(out.beta, strengths(strengths_->forward(in.x)));
    return out;
  }

 private:
  int64_t more_;                                         // n - 1
  std::optional<nn::Linear> keys_, values_, strengths_;  // W_j, V_j, P_j of all j > 1
};

using namespace conformance;

void deltaproduct_limits(Findings& f) {
  const auto gated = make_variant("gated_deltanet", {}, made(true));
  const auto with_weights_of_gated = [&](int64_t n) {
    auto out = make_variant("deltaproduct", {{"householders", n}}, made(true));
    set(*out, gated->state_dict());
    return out;
  };
  equal(f, "n = 1 and gated_deltanet", *with_weights_of_gated(1), *gated, 1e-13);
  // Keys of 0 write nothing.
  const auto idle = with_weights_of_gated(3);
  set(*idle, {{"keys.weight", Tensor::zeros({2 * H * D, H * D}, DType::f64)}});
  equal(f, "further keys of 0 and gated_deltanet", *idle, *gated, 1e-12);
}

// Two reflections I - 2 k kᵀ rotate the plane of their keys by twice the angle between them, which
// no single delta rule does: the state after i tokens is the first one, rotated i times.
void deltaproduct_rotation(Findings& f) {
  const auto variant = make_variant(
      "deltaproduct", {{"silu", false}, {"negative", true}, {"norm", false}, {"gate", false}},
      {.heads = 1, .dim = 2, .max_length = N, .causal = true});
  // x is q, large: (1, 0) first, with strengths sigmoid(x P) = 1 and 0, then (0, 1), with 1 and 1.
  const double angle = 0.3, always = 400;
  set(*variant, {{"step_bias", Tensor::full({1}, -800, DType::f64)},  // no decay
                 {"step.weight", Tensor::zeros({1, 2}, DType::f64)},
                 {"beta.weight", Tensor::from<double>({0, always}, {1, 2})},
                 {"strengths.weight", Tensor::from<double>({-always, always}, {1, 2})},
                 {"keys.weight", Tensor::from<double>(
                                     {0, std::cos(angle) * 1e6, 0, std::sin(angle) * 1e6}, {2, 2})},
                 {"values.weight", Tensor::zeros({2, 2}, DType::f64)}});
  Tensor q = Tensor::zeros({1, N, 1, 2}, DType::f64), k = q.clone(), v = q.clone();
  for (int64_t i = 0; i < N; ++i) {
    q.data<double>()[2 * i + (i > 0)] = 1e6;
    k.data<double>()[2 * i] = 1e6;
  }
  v.data<double>()[0] = 1;
  const Tensor found = forward(*variant, q, k, v);
  double worst = 0;
  for (int64_t i = 1; i < N; ++i) {
    const double turned = std::sin(2 * angle * static_cast<double>(i)) / std::sqrt(2.0);
    worst = std::max(worst, std::abs(found.at({0, i, 0, 0}) - turned));
  }
  f.expect(worst <= 1e-9, "turned states differ from sin(2 i angle) by ", worst);
  f.measured("turned states to ", worst);
}

}  // namespace

Spec deltaproduct_variant() {
  return make_spec<DeltaProductOptions, DeltaProduct>(
      {.summary = "several delta rules for each token, on a state that decays by a factor per head",
       .paper = "Siems et al. 2025, arXiv 2502.10297",
       .cases = {{},
                 {{"householders", 3}, {"silu", false}, {"norm", false}, {"gate", false}},
                 {{"householders", 1}, {"negative", true}}},
       .evidence = {
           {"gated-deltanet", "with one step per token, or further keys of 0, it is gated_deltanet",
            deltaproduct_limits},
           {"rotation", "two reflections turn the state by twice the angle of their keys",
            deltaproduct_rotation}}});
}

}  // namespace longhand::attention
