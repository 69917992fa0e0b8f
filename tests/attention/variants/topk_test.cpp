#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("topk equals its definition") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 70), k = GENERATE(1, 3, 20, 100);
  const auto n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  const Tensor q = normal({2, N, 2, 4}, 1), keys = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const auto variant =
      make_variant("topk", {.max_length = N, .causal = causal}, options_of({{"k", k}}));
  const Tensor seen =
      attention::definitions::visible(N, N, {.causal = causal, .lengths = mask.lengths});
  const Tensor expected =
      attention::definitions::apply(
          attention::definitions::topk(Variable(q), Variable(keys), k, seen), Variable(v))
          .value();
  CHECK(near(forward(*variant, q, keys, v, mask), expected, 1e-12));
}

TEST_CASE("topk: of equal scores the earlier keys are selected, and exactly k") {
  // All keys are equal, so all scores of a query are.
  const Tensor q = normal({1, 6, 1, 4}, 1), keys = Tensor::full({1, 6, 1, 4}, 0.5, DType::f64);
  Tensor v = Tensor::zeros({1, 6, 1, 4}, DType::f64);
  for (int64_t j = 0; j < 6; ++j) v.slice(1, j, j + 1).fill(static_cast<double>(j));
  const auto variant = make_variant("topk", {.heads = 1}, options_of({{"k", int64_t{3}}}));
  const Tensor out = forward(*variant, q, keys, v);
  for (int64_t i = 0; i < 6; ++i) CHECK(out.at({0, i, 0, 0}) == Approx(1));  // of 0, 1 and 2
}
