// The core of the path variant: softmax attention through products of generalised Householder matrices.
#include "longhand/attention/ops/path_attention.h"
#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

void check_path(const Golden& golden, DType dtype, double tolerance) {
  const auto leaf = [&](const char* name) {
    return golden.has(name) ? Variable(by_token(golden.at(name), dtype).contiguous(), true)
                            : Variable();
  };
  const attention::PathInputs in{leaf("q"), leaf("k"),    leaf("v"),
                                 leaf("w"), leaf("beta"), leaf("log_decay")};
  const Variable out = attention::path_attention(in);
  backward(out, by_token(golden.at("grad_out"), dtype));
  compare("out", out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  for (const auto& [name, x] :
       {std::pair("grad_q", in.q), std::pair("grad_k", in.k), std::pair("grad_v", in.v),
        std::pair("grad_w", in.w), std::pair("grad_beta", in.beta),
        std::pair("grad_log_decay", in.log_decay)})
    if (x.defined()) compare(name, x.grad(), by_token(golden.at(name), DType::f64), tolerance);
}

}  // namespace

void read_path(const Golden& golden) {
  check_path(golden, DType::f64, 1e-9);
  check_path(golden, DType::f32, 2e-4);
}

}  // namespace longhand::test
