// Exactness limits: settings under which an approximation is exact, or one option is another.
#include "longhand/attention/conformance/tools.h"

namespace longhand::attention::conformance {
namespace {

// q, k, v for the limits: 24 tokens, 2 heads of width 4, of unit variance.
constexpr int64_t N = 24, H = 2, D = 4;
struct Inputs {
  Tensor q = normal({2, N, H, D}, 1, DType::f64, 1), k = normal({2, N, H, D}, 2, DType::f64, 1),
         v = normal({2, N, H, D}, 3, DType::f64, 1), cotangent = normal({2, N, H, D}, 4);
};

Made made(bool causal = false) { return {.max_length = N, .causal = causal}; }

// Results and gradients of q, k, v are the same.
void equal(Findings& f, const std::string& what, Variant& a, Variant& b, double tolerance,
           const Inputs& x = {}, const Mask& mask = {}) {
  const Outcome one = run(a, x.q, x.k, x.v, mask, x.cotangent);
  const Outcome two = run(b, x.q, x.k, x.v, mask, x.cotangent);
  double worst = 0;
  for (const auto& [name, s, t] :
       {std::tuple("the result", one.out, two.out), std::tuple("dq", one.dq, two.dq),
        std::tuple("dk", one.dk, two.dk), std::tuple("dv", one.dv, two.dv)}) {
    const double d = distance(s, t);
    worst = std::max(worst, d);
    f.expect(d <= tolerance, what, ": ", name, " differs by ", d, ", at most ", tolerance,
             " is wanted");
  }
  f.measured(what, " to ", worst);
}

// Overwrites parameters and buffers by name.
void set(Variant& variant, const nn::StateDict& values) {
  nn::StateDict state = variant.state_dict();
  for (const auto& [name, tensor] : values) {
    check(state.count(name) == 1, "conformance: ", name, " is no parameter");
    state[name] = tensor;
  }
  variant.load_state_dict(state);
}

Tensor identity(int64_t n) {
  Tensor out = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) out.slice(0, i, i + 1).slice(1, i, i + 1).fill(1);
  return out;
}

void linformer_identity(Findings& f) {
  const auto variant = make_variant("linformer", {{"k", N}}, made());
  set(*variant, {{"projection_k", identity(N)}, {"projection_v", identity(N)}});
  equal(f, "k = N, E = F = I and softmax", *variant, *make_variant("softmax", {}, made()), 1e-12);
}

void linformer_pooling(Findings& f) {
  const int64_t k = 6, s = N / k;
  const auto pooled = make_variant("linformer", {{"k", k}, {"projection", "mean_pool"}}, made());
  const auto learned = make_variant("linformer", {{"k", k}, {"sharing", "kv"}}, made());
  Tensor means = Tensor::zeros({k, N}, DType::f64);
  for (int64_t c = 0; c < k; ++c)
    means.slice(0, c, c + 1).slice(1, c * s, (c + 1) * s).fill(1 / static_cast<double>(s));
  set(*learned, {{"projection_k", means}});
  equal(f, "E of block means and mean_pool", *learned, *pooled, 1e-12);
  const auto convolved =
      make_variant("linformer", {{"k", k}, {"projection", "conv"}, {"sharing", "kv"}}, made());
  set(*convolved, {{"projection_k", Tensor::full({1, s}, 1 / static_cast<double>(s), DType::f64)}});
  equal(f, "conv with weights 1 / stride and mean_pool", *convolved, *pooled, 1e-12);
}

}  // namespace

std::vector<Evidence> limit_checks() {
  return {
      {"linformer", {"identity", "k = N, E = F = I: softmax attention"}, linformer_identity},
      {"linformer",
       {"pooling", "E of block means, mean pooling and a constant convolution are one"},
       linformer_pooling},
  };
}

}  // namespace longhand::attention::conformance
