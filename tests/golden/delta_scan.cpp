// Attention cores that follow a delta rule: deltanet, gated_deltanet, deltaproduct, kda and rwkv7. o_i = S_iᵀ q_i with q scaled by D^(-1/2).
#include <cmath>

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

// x of each token in one of its n steps, zeros in the others.
Variable in_step(const Variable& x, int64_t step, int64_t n) {
  Variables steps(n, Variable(Tensor::zeros(x.shape(), x.dtype())));
  steps[step] = x;
  Shape shape = x.shape();
  shape[1] *= n;
  return reshape(stack(steps, 2), shape);
}

void check_delta(const Golden& golden, const std::string& type, DType dtype, double tolerance) {
  std::map<std::string, Variable> leaves;
  for (const char* name : {"q", "k", "v", "beta", "log_decay", "a", "b"})
    if (golden.has(name))
      leaves[name] = Variable(by_token(golden.at(name), dtype).contiguous(), true);
  Variable initial;
  if (golden.has("initial_state")) initial = Variable(golden.at("initial_state").to(dtype), true);
  const auto leaf = [&](const char* name) {
    return leaves.count(name) ? leaves.at(name) : Variable();
  };
  const Variable q = leaf("q") / std::sqrt(static_cast<double>(golden.at("q").size(3)));
  attention::DeltaInputs in{q, leaf("k"), leaf("v"), leaf("beta"), leaf("log_decay")};
  int64_t n = 1;  // steps of a token, of which the last one is read
  if (type == "rwkv7") {
    // S_i = diag(e^g) S + b (Sᵀ a)ᵀ + k vᵀ: it reads -e^-g a and writes b, and k for the value.
    in = {.q = q,
          .k = leaf("b"),
          .v = in.v,
          .log_decay = in.log_decay,
          .read = -(leaf("a") * exp(-in.log_decay)),
          .write = in.k};
  } else if (type == "deltaproduct") {  // n keys, values and strengths a token
    n = golden.at("k").size(2) / golden.at("q").size(2);
    in.q = in_step(q, n - 1, n);
    if (in.log_decay.defined()) in.log_decay = in_step(in.log_decay, 0, n);
  }
  attention::DeltaResult r = attention::delta_scan(in, initial);
  if (n > 1) r.out = slice(r.out, 1, n - 1, r.out.size(1), n);
  backward(r.out, by_token(golden.at("grad_out"), dtype));
  compare("out", r.out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  if (golden.has("final_state"))
    compare("final_state", r.state.value(), golden.at("final_state"), tolerance);
  for (const auto& [name, variable] : leaves)
    compare("grad_" + name, variable.grad(), by_token(golden.at("grad_" + name), DType::f64),
            tolerance);
  if (golden.has("grad_initial_state"))
    compare("grad_initial_state", initial.grad(), golden.at("grad_initial_state"), tolerance);
}

}  // namespace

void read_delta_scan(const Golden& golden) {
  const auto type = std::get<std::string>(golden.config.find("type")->value);
  check_delta(golden, type, DType::f64, 1e-9);
  check_delta(golden, type, DType::f32, 2e-4);
}

}  // namespace longhand::test
