// Attention cores whose state decays, as scans and as variants: retnet, mamba2 and gla. o_i = S_iᵀ q_i with q scaled by D^(-1/2) and no normaliser.
#include <cmath>
#include <string>

#include "longhand/attention/ops/scan.h"
#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

void check_scan(const Golden& golden, DType dtype, double tolerance) {
  const auto leaf = [&](const char* name) {
    return Variable(by_token(golden.at(name), dtype).contiguous(), true);
  };
  const Variable q = leaf("q"), k = leaf("k"), v = leaf("v");
  Variable g;
  if (golden.has("log_decay")) {
    g = leaf("log_decay");
  } else {  // retnet: γ_h = 1 - 2^(-5-h)
    Tensor fixed = Tensor::empty({q.size(0), q.size(1), q.size(2)}, DType::f64);
    for (int64_t i = 0; i < fixed.numel(); ++i)
      fixed.data<double>()[i] = std::log1p(-std::exp2(-5 - static_cast<double>(i % q.size(2))));
    g = Variable(fixed.to(dtype));
  }
  attention::ScanState initial;
  if (golden.has("initial_state")) initial.S = Variable(golden.at("initial_state").to(dtype), true);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const attention::ScanResult r = attention::scan(
      {q * scale, k, v, g}, initial.S.defined() ? &initial : nullptr, {.normalizer = false});
  backward(r.out, by_token(golden.at("grad_out"), dtype));
  compare("out", r.out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  if (golden.has("final_state"))
    compare("final_state", r.state.S.value(), golden.at("final_state"), tolerance);
  compare("grad_q", q.grad(), by_token(golden.at("grad_q"), DType::f64), tolerance);
  compare("grad_k", k.grad(), by_token(golden.at("grad_k"), DType::f64), tolerance);
  compare("grad_v", v.grad(), by_token(golden.at("grad_v"), DType::f64), tolerance);
  if (golden.has("grad_log_decay"))
    compare("grad_log_decay", g.grad(), by_token(golden.at("grad_log_decay"), DType::f64),
            tolerance);
  if (golden.has("grad_initial_state"))
    compare("grad_initial_state", initial.S.grad(), golden.at("grad_initial_state"), tolerance);
}

// The variants compute their decays from tokens x. This gives x, and values, for which they compute
// those of the case: with P = I, x = P⁻¹(g). The chain rule gives the gradients of x and v.
//
//   gla:    g = log σ(x):                     x = -log(e^-g - 1),   dx = (1 - e^g) dg
//   mamba2: Δ = softplus(x), g = -Δ, v = Δ v':  x = log(e^Δ - 1),   dΔ = -dg + v'·dv, dx = (1 - e^-Δ) dΔ
void check_variant(const Golden& golden, const std::string& type, double tolerance) {
  const Tensor q = by_token(golden.at("q"), DType::f64).contiguous(),
               k = by_token(golden.at("k"), DType::f64).contiguous();
  Tensor v = by_token(golden.at("v"), DType::f64).contiguous();
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), width = H * D;
  if (v.size(3) != D || golden.has("initial_state")) return;  // no option of a variant
  attention::Config config{.heads = H, .head_dim = D, .max_length = N, .causal = true};
  for (const char* const off : {"norm", "gate"}) config.options.set(off, false);
  if (type == "gla") {
    config.options.set("decay_rank", width);
    config.options.set("temperature", 1.0);
  }
  if (type == "mamba2") config.options.set("skip", false);
  const auto variant = attention::make(type, nn::root(DType::f64), config);
  auto state = variant->state_dict();
  const auto identity = [](Tensor to) {
    to.fill(0);
    for (int64_t i = 0; i < to.size(0); ++i) to.slice(0, i, i + 1).slice(1, i, i + 1).fill(1);
  };
  Tensor x = Tensor::zeros({B, N, width}, DType::f64), dx = x.clone();
  Tensor dv = by_token(golden.at("grad_v"), DType::f64).contiguous();
  if (type != "retnet") {
    const auto g = by_token(golden.at("log_decay"), DType::f64).to_vector<double>(),
               dg = by_token(golden.at("grad_log_decay"), DType::f64).to_vector<double>();
    double* const to = x.data<double>();
    double* const gradient = dx.data<double>();
    if (type == "gla") {
      identity(state.at("decay.weight_in"));
      identity(state.at("decay.weight_out"));
      state.at("decay.bias").fill(0);
      for (size_t i = 0; i < g.size(); ++i)
        to[i] = -std::log(std::expm1(-g[i])), gradient[i] = -std::expm1(g[i]) * dg[i];
    } else {
      identity(state.at("step.weight"));
      state.at("step_bias").fill(0);
      state.at("log_rate").fill(0);
      for (size_t i = 0; i < g.size(); ++i) {
        double* const values = v.data<double>() + static_cast<int64_t>(i) * D;
        double* const changes = dv.data<double>() + static_cast<int64_t>(i) * D;
        const auto token = static_cast<int64_t>(i) / H, h = static_cast<int64_t>(i) % H;
        double of_step = -dg[i];
        for (int64_t d = 0; d < D; ++d) {
          values[d] /= -g[i];
          of_step += values[d] * changes[d];
          changes[d] *= -g[i];
        }
        to[token * width + h] = std::log(std::expm1(-g[i]));
        gradient[token * width + h] = -std::expm1(g[i]) * of_step;
      }
    }
  }
  const Variable vq(q, true), vk(k, true), vv(v, true), vx(x, true);
  const Variable out = variant->forward({vq, vk, vv, vx}, {}, {});
  backward(out, by_token(golden.at("grad_out"), DType::f64));
  compare("out", out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  compare("grad_q", vq.grad(), by_token(golden.at("grad_q"), DType::f64), tolerance);
  compare("grad_k", vk.grad(), by_token(golden.at("grad_k"), DType::f64), tolerance);
  compare("grad_v", vv.grad(), dv, tolerance);
  if (type != "retnet") compare("grad_x", vx.grad(), dx, tolerance);
}

}  // namespace

void read_scan(const Golden& golden) {
  check_scan(golden, DType::f64, 1e-9);
  check_scan(golden, DType::f32, 2e-4);
  check_variant(golden, std::get<std::string>(golden.config.find("type")->value), 1e-9);
}

}  // namespace longhand::test
