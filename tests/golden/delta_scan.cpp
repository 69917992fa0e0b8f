// Attention cores that follow a delta rule: deltanet, gated_deltanet, kda and rwkv7. o_i = S_iᵀ q_i with q scaled by D^(-1/2).
#include <cmath>

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

// S_i = diag(e^g) S + b (Sᵀ a)ᵀ + k vᵀ in two tokens of a delta rule: the first reads -e^-g a and
// writes b, the second writes k without reading.
Variable two_tokens(const Variable& first, const Variable& second) {
  Shape shape = first.shape();
  shape[1] *= 2;
  return reshape(stack({first, second}, 2), shape);
}
Variable zeros(const Variable& x) { return Variable(Tensor::zeros(x.shape(), x.dtype())); }

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
  if (type == "rwkv7") {
    const Variable &k = in.k, &v = in.v, &g = in.log_decay;
    in = {.q = two_tokens(zeros(q), q),
          .k = two_tokens(leaf("b"), k),
          .v = two_tokens(zeros(v), v),
          .log_decay = two_tokens(g, zeros(g)),
          .read = two_tokens(-(leaf("a") * exp(-g)), zeros(k))};
  }
  attention::DeltaResult r = attention::delta_scan(in, initial);
  if (type == "rwkv7") r.out = slice(r.out, 1, 1, r.out.size(1), 2);
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
