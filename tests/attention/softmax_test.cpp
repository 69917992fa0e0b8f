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

TEST_CASE("softmax: a bias is added to the scores, and what is not kept has no weight") {
  const int64_t N = 5;
  const auto variant = make_variant("softmax");
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const Tensor bias = normal({2, N, N}, 4);
  Tensor keep = Tensor::full({2, 1, N, N}, 1, DType::u8);
  keep.select(0, 1).slice(1, 2, 3).fill(0);  // query 2 of sample 1 attends to nothing
  keep.select(0, 0).slice(1, 0, 2).slice(2, 1, 4).fill(0);  // and some keep no keys 1, 2, 3
  const Mask mask{.lengths = lengths({5, 4}).lengths, .keep = keep, .bias = Variable(bias)};
  const Tensor out = variant->forward(Variable(q), Variable(k), Variable(v), mask, {}).value();
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < (b ? 4 : 5); ++i)
      for (int64_t h = 0; h < 2; ++h) {
        double total = 0;
        Row wanted(4, 0.0);
        for (int64_t j = 0; j < (b ? 4 : 5); ++j) {
          if (keep.at({b, 0, i, j}) == 0) continue;
          double score = bias.at({h, i, j});
          for (int64_t d = 0; d < 4; ++d) score += q.at({b, i, h, d}) * k.at({b, j, h, d}) / 2;
          total += std::exp(score);
          for (int64_t d = 0; d < 4; ++d) wanted[d] += std::exp(score) * v.at({b, j, h, d});
        }
        for (int64_t d = 0; d < 4; ++d)
          CHECK(out.at({b, i, h, d}) ==
                Approx(total > 0 ? wanted[d] / total : 0).margin(1e-12).epsilon(1e-10));
      }
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) {
        return variant->forward(in[0], in[1], in[2],
                                {.lengths = mask.lengths, .keep = keep, .bias = in[3]}, {});
      },
      {q, k, v, bias});
  INFO(report);
  CHECK(report.ok);
}
