// The core of mesa: the regression of values on keys, by conjugate gradients and by inverses. q is not scaled.
#include "longhand/attention/ops/ridge_scan.h"

#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

void check_ridge_scan(const Golden& golden, bool exact, DType dtype, double tolerance) {
  std::map<std::string, Variable> leaves;
  for (const char* name : {"q", "k", "v", "beta", "log_decay"})
    leaves[name] = Variable(by_token(golden.at(name), dtype).contiguous(), true);
  const Variable lambda(golden.at("lambda").to(dtype), true);
  const Variable out = attention::ridge_scan(
      {leaves["q"], leaves["k"], leaves["v"], leaves["beta"], leaves["log_decay"]}, lambda,
      {.exact = exact});
  backward(out, by_token(golden.at("grad_out"), dtype));
  compare("out", out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  for (const auto& [name, variable] : leaves)
    compare("grad_" + name, variable.grad(), by_token(golden.at("grad_" + name), DType::f64),
            tolerance);
  compare("grad_lambda", lambda.grad(), golden.at("grad_lambda"), tolerance);
}

}  // namespace

void read_ridge_scan(const Golden& golden) {
  for (const bool exact : {false, true}) {
    check_ridge_scan(golden, exact, DType::f64, 1e-9);
    check_ridge_scan(golden, exact, DType::f32, 2e-4);
  }
}

}  // namespace longhand::test
