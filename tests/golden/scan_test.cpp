// Attention cores whose state decays, as scans: retnet, mamba2 and gla in the folder gated. o_i =
// S_iᵀ q_i with q scaled by D^(-1/2) and no normaliser.
#include <cmath>

#include "longhand/attention/ops/scan.h"
#include "longhand/autograd/ops.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor by_token(const Tensor& t, DType dtype) { return t.to(dtype).transpose(1, 2); }

void compare(const std::string& what, const Tensor& got, const Tensor& expected, double tolerance) {
  const double error = relative_error(got, expected);
  INFO(what << ": relative error " << error << ", expected at most " << tolerance);
  CHECK(error <= tolerance);
}

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

}  // namespace

TEST_CASE("golden scans agree") {
  for (const auto& path : golden_files("gated")) {
    const Golden golden = read_golden(path);
    const std::string type = std::get<std::string>(golden.config.find("type")->value);
    if (type != "retnet" && type != "mamba2" && type != "gla") continue;
    DYNAMIC_SECTION(path.stem().string()) {
      check_scan(golden, DType::f64, 1e-9);
      check_scan(golden, DType::f32, 2e-4);
    }
  }
}
