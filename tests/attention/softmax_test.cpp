#include <limits>

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("softmax is exp(q k / sqrt(D)), normalised") {
  const bool causal = GENERATE(false, true);
  const Mask mask = GENERATE(Mask{}, lengths({9, 4}));
  const Tensor q = normal({2, 9, 2, 5}, 1), k = normal({2, 9, 2, 5}, 2),
               v = normal({2, 9, 2, 5}, 3);
  const auto variant = make_variant("softmax", {.dim = 5, .causal = causal});
  CHECK(near(variant->forward(Variable(q), Variable(k), Variable(v), mask, {}).value(),
             naive_kernel_attention(q, k, v, softmax_kernel, causal, mask), 1e-13));
}

TEST_CASE("softmax survives large scores") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor q = normal({1, 6, 1, 4}, 1, dtype, 300), k = normal({1, 6, 1, 4}, 2, dtype, 300),
                 v = normal({1, 6, 1, 4}, 3, dtype);
    const auto variant = make_variant("softmax", {.heads = 1, .dtype = dtype});
    const Outcome o = run_variant(*variant, q, k, v, lengths({5}), normal({1, 6, 1, 4}, 4, dtype));
    CHECK(all_finite(o.out));
    CHECK(all_finite(o.dq));
    CHECK(all_finite(o.dk));
  }
}
