// The core of the forgetting variant: softmax attention with a log decay of each token.
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

void check_forgetting(const Golden& golden, DType dtype, double tolerance) {
  const auto leaf = [&](const char* name) {
    return Variable(by_token(golden.at(name), dtype).contiguous(), true);
  };
  const Variable q = leaf("q"), k = leaf("k"), v = leaf("v"), g = leaf("log_decay");
  const Variable out = attention::softmax_attention(q, k, v, {.causal = true, .log_decay = g});
  backward(out, by_token(golden.at("grad_out"), dtype));
  for (const auto& [name, got] :
       {std::pair("out", out.value()), std::pair("grad_q", q.grad()), std::pair("grad_k", k.grad()),
        std::pair("grad_v", v.grad()), std::pair("grad_log_decay", g.grad())})
    compare(name, got, by_token(golden.at(name), DType::f64), tolerance);
}

}  // namespace

void read_forgetting(const Golden& golden) {
  check_forgetting(golden, DType::f64, 1e-9);
  check_forgetting(golden, DType::f32, 2e-4);
}

}  // namespace longhand::test
