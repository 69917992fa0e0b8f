// The core of the forgetting variant: softmax attention with a log decay of each token.
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/ops.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor by_token(const Tensor& t, DType dtype) { return t.to(dtype).transpose(1, 2); }

void check_core(const Golden& golden, DType dtype, double tolerance) {
  const auto leaf = [&](const char* name) {
    return Variable(by_token(golden.at(name), dtype).contiguous(), true);
  };
  const Variable q = leaf("q"), k = leaf("k"), v = leaf("v"), g = leaf("log_decay");
  const Variable out = attention::softmax_attention(q, k, v, {.causal = true, .log_decay = g});
  backward(out, by_token(golden.at("grad_out"), dtype));
  for (const auto& [name, got] :
       {std::pair("out", out.value()), std::pair("grad_q", q.grad()), std::pair("grad_k", k.grad()),
        std::pair("grad_v", v.grad()), std::pair("grad_log_decay", g.grad())}) {
    INFO(name);
    CHECK(relative_error(got, by_token(golden.at(name), DType::f64)) <= tolerance);
  }
}

}  // namespace

TEST_CASE("golden cases of the forget gate agree") {
  int found = 0;
  for (const auto& path : golden_files("gated")) {
    const Golden golden = read_golden(path);
    if (std::get<std::string>(golden.config.find("type")->value) != "forgetting") continue;
    ++found;
    check_core(golden, DType::f64, 1e-9);
    check_core(golden, DType::f32, 2e-4);
  }
  if (!std::getenv("LONGHAND_GOLDEN_DIR")) CHECK(found > 0);
}
