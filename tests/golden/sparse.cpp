// Sparse attention, against other implementations. bigbird: besides the datasets of a core, random_blocks
// (H, n - 2, r) are the blocks that each block of queries but the first and the last drew.
#include <algorithm>
#include <set>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"
#include "tests/support/catch.h"

namespace longhand::test {
namespace {

// Neighbouring blocks, the first and the last one, and those drawn.
attention::BlockPattern pattern(const Tensor& drawn, int64_t block) {
  const int64_t H = drawn.size(0), n = drawn.size(1) + 2;
  attention::BlockPattern out{.block = block, .heads = H};
  for (int64_t h = 0; h < H; ++h)
    for (int64_t a = 0; a < n; ++a) {
      std::set<int32_t> blocks{0, static_cast<int32_t>(n - 1)};
      for (int64_t b = 0; b < n; ++b)
        if (a == 0 || a == n - 1 || std::abs(a - b) <= 1) blocks.insert(static_cast<int32_t>(b));
      for (int64_t r = 0; r < drawn.size(2) && a > 0 && a < n - 1; ++r)
        blocks.insert(static_cast<int32_t>(drawn.at({h, a - 1, r})));
      out.keys.insert(out.keys.end(), blocks.begin(), blocks.end());
      out.begin.push_back(static_cast<int64_t>(out.keys.size()));
    }
  return out;
}

void check_bigbird(const Golden& golden, DType dtype, double tolerance) {
  const auto leaf = [&](const char* name) {
    return Variable(by_token(golden.at(name), dtype).contiguous(), true);
  };
  const Variable q = leaf("q"), k = leaf("k"), v = leaf("v");
  const int64_t block = std::get<int64_t>(golden.config.find("block")->value);
  const Tensor drawn = golden.at("random_blocks");
  CHECK(drawn.size(2) == std::get<int64_t>(golden.config.find("random_blocks")->value));
  const Variable out = attention::softmax_attention(
      q, k, v, {.pattern = std::make_shared<const attention::BlockPattern>(pattern(drawn, block))});
  backward(out, by_token(golden.at("grad_out"), dtype));
  for (const auto& [name, got] : {std::pair("out", out.value()), std::pair("grad_q", q.grad()),
                                  std::pair("grad_k", k.grad()), std::pair("grad_v", v.grad())})
    compare(name, got, by_token(golden.at(name), DType::f64), tolerance);
}

void check_scatterbrain(const Golden& golden, DType dtype, double tolerance) {
  const Shape shape = golden.at("q").shape();  // (B, H, N, D)
  attention::Config config{.heads = shape[1], .head_dim = shape[3], .max_length = shape[2]};
  config.causal = std::get<bool>(golden.config.find("causal")->value);
  for (const char* name : {"window", "features"})
    config.options.set(name, golden.config.find(name)->value);
  const auto variant = attention::make("scatterbrain", nn::root(dtype, 1), config);
  nn::StateDict state = variant->state_dict();
  state["features"] = golden.at("params/features").to(dtype);
  variant->load_state_dict(state);
  const auto leaf = [&](const char* name) {
    return Variable(by_token(golden.at(name), dtype).contiguous(), true);
  };
  const Variable q = leaf("q"), k = leaf("k"), v = leaf("v");
  const Variable out = variant->forward(q, k, v, {}, {});
  backward(out, by_token(golden.at("grad_out"), dtype));
  for (const auto& [name, got] : {std::pair("out", out.value()), std::pair("grad_q", q.grad()),
                                  std::pair("grad_k", k.grad()), std::pair("grad_v", v.grad())})
    compare(name, got, by_token(golden.at(name), DType::f64), tolerance);
}

}  // namespace

void read_bigbird(const Golden& golden) {
  check_bigbird(golden, DType::f64, 1e-9);
  check_bigbird(golden, DType::f32, 2e-4);
}

void read_scatterbrain(const Golden& golden) {
  check_scatterbrain(golden, DType::f64, 1e-9);
  check_scatterbrain(golden, DType::f32, 2e-4);
}

}  // namespace longhand::test
