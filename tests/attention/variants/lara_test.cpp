#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Settings lara(int64_t landmarks, int64_t samples, const std::string& weights) {
  return {{"landmarks", landmarks}, {"samples", samples}, {"weights", weights}};
}

nn::Pass training(uint64_t seed) { return {.training = true, .random = Generator(seed)}; }

}  // namespace

TEST_CASE("lara: training passes draw, others use the means") {
  const std::string weights = GENERATE("query", "balance");
  const Operands x({2, 24, 2, 4});
  const auto drawn = make_variant("lara", {}, options_of(lara(4, 2, weights)));
  const auto means = make_variant("lara", {}, options_of(lara(4, 0, weights)));
  const Tensor fixed = forward(*means, x.q, x.k, x.v);
  CHECK(identical(forward(*drawn, x.q, x.k, x.v), fixed));
  CHECK(identical(forward(*means, x.q, x.k, x.v, {}, training(1)), fixed));
  CHECK_FALSE(near(forward(*drawn, x.q, x.k, x.v, {}, training(1)), fixed, 1e-3));
  CHECK_FALSE(near(forward(*drawn, x.q, x.k, x.v, {}, training(1)),
                   forward(*drawn, x.q, x.k, x.v, {}, training(2)), 1e-3));
}
