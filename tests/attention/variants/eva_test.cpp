#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options eva(int64_t window, int64_t chunk, const std::string& weight = "tokens") {
  return options_of({{"window", window}, {"chunk", chunk}, {"chunk_weight", weight}});
}

}  // namespace

TEST_CASE("eva: a chunk has the weight of its tokens, or of one key") {
  // Scores of 0: the 3 tokens of the block count as 3, and each chunk of 3 as 3 or 1.
  const int64_t N = 9;
  const Tensor zero = Tensor::zeros({1, N, 1, 4}, DType::f64);
  Tensor v = Tensor::zeros({1, N, 1, 4}, DType::f64);
  v.slice(1, 0, 3).fill(1);
  const Tensor tokens = forward(*make_variant("eva", {.heads = 1}, eva(3, 3)), zero, zero, v);
  const Tensor one = forward(*make_variant("eva", {.heads = 1}, eva(3, 3, "one")), zero, zero, v);
  CHECK(tokens.at({0, 0, 0, 0}) == Approx(3.0 / 9));
  CHECK(tokens.at({0, 8, 0, 0}) == Approx(3.0 / 9));
  CHECK(one.at({0, 0, 0, 0}) == Approx(3.0 / 5));
  CHECK(one.at({0, 8, 0, 0}) == Approx(1.0 / 5));
}

TEST_CASE("eva: no key counts both in the block of a query and in a chunk") {
  // Tokens of the block with a value of 1 and all others with 0: the weight of the block is that of
  // softmax attention, with keys that are equal.
  const int64_t N = 16;
  const Tensor q = normal({1, N, 1, 4}, 1), k = Tensor::full({1, N, 1, 4}, 0.3, DType::f64);
  Tensor v = Tensor::zeros({1, N, 1, 4}, DType::f64);
  v.slice(1, 8, 12).fill(1);
  const Tensor out = forward(*make_variant("eva", {.heads = 1}, eva(4, 2)), q, k, v);
  for (int64_t i = 8; i < 12; ++i) CHECK(out.at({0, i, 0, 0}) == Approx(0.25));
}

TEST_CASE("eva: training passes draw, others do not, and sampled = false never does") {
  const Operands x({2, 24, 2, 4});
  const auto training = [](uint64_t seed) {
    return nn::Pass{.training = true, .random = Generator(seed)};
  };
  const auto drawn = make_variant("eva", {}, eva(4, 2));
  const Tensor mean = forward(*drawn, x.q, x.k, x.v);
  CHECK_FALSE(near(forward(*drawn, x.q, x.k, x.v, {}, training(1)), mean, 1e-3));
  CHECK_FALSE(near(forward(*drawn, x.q, x.k, x.v, {}, training(1)),
                   forward(*drawn, x.q, x.k, x.v, {}, training(2)), 1e-3));
  const auto fixed = make_variant(
      "eva", {}, options_of({{"window", int64_t{4}}, {"chunk", int64_t{2}}, {"sampled", false}}));
  CHECK(identical(forward(*fixed, x.q, x.k, x.v, {}, training(1)), mean));
}

TEST_CASE("eva: a window that chunks do not divide is refused") {
  CHECK_THROWS_WITH(make_variant("eva", {}, eva(10, 4)),
                    Catch::Contains("window") && Catch::Contains("multiple of chunk = 4"));
}
