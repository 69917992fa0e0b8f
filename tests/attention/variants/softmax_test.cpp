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

TEST_CASE("softmax: large scores stay finite") {
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

TEST_CASE("softmax: a bias is added to the scores, and keys that are not kept have no weight") {
  const int64_t N = 5;
  const auto variant = make_variant("softmax");
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const Tensor bias = normal({2, N, N}, 4);
  Tensor keep = Tensor::full({2, 1, N, N}, 1, DType::u8);
  keep.select(0, 1).slice(1, 2, 3).fill(0);  // query 2 of sample 1 attends to nothing
  keep.select(0, 0).slice(1, 0, 2).slice(2, 1, 4).fill(0);  // 2 queries, 3 keys
  const Mask mask{.lengths = lengths({5, 4}).lengths, .keep = keep, .bias = Variable(bias)};
  const Tensor out = variant->forward(Variable(q), Variable(k), Variable(v), mask, {}).value();
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < (b ? 4 : 5); ++i)
      for (int64_t h = 0; h < 2; ++h) {
        double total = 0;
        Row expected(4, 0.0);
        for (int64_t j = 0; j < (b ? 4 : 5); ++j) {
          if (keep.at({b, 0, i, j}) == 0) continue;
          double score = bias.at({h, i, j});
          for (int64_t d = 0; d < 4; ++d) score += q.at({b, i, h, d}) * k.at({b, j, h, d}) / 2;
          total += std::exp(score);
          for (int64_t d = 0; d < 4; ++d) expected[d] += std::exp(score) * v.at({b, j, h, d});
        }
        for (int64_t d = 0; d < 4; ++d)
          CHECK(out.at({b, i, h, d}) ==
                Approx(total > 0 ? expected[d] / total : 0).margin(1e-12).epsilon(1e-10));
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

TEST_CASE("softmax: tiled and naive are the same, with every option") {
  const auto option = GENERATE(0, 1, 2, 3, 4);
  const bool causal = GENERATE(false, true);
  const int64_t B = 2, N = 130, H = 4, G = 2, D = 5;
  Options options("attention");
  if (option == 1) options.set("window", int64_t{40});
  if (option == 2) options.set("bias", std::string("alibi"));
  if (option == 3) options.set("scale", 0.2);
  if (option == 4) options.set("dropout", 0.3);
  const Made made{.heads = H, .dim = D, .max_length = N, .kv_heads = G, .causal = causal};
  const auto tiled = make_variant("softmax", made, options);
  options.set("impl", std::string("naive"));
  const auto naive = make_variant("softmax", made, options);
  const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, G, D}, 2),
               v = normal({B, N, G, D}, 3), cotangent = normal({B, N, H, D}, 4);
  const nn::Pass pass{.training = true, .random = Generator(9)};
  for (const Mask& mask : {Mask{}, lengths({101, 130})}) {
    const Outcome a = run_variant(*tiled, q, k, v, mask, cotangent, pass),
                  b = run_variant(*naive, q, k, v, mask, cotangent, pass);
    CHECK(near(a.out, b.out, 1e-12));
    CHECK(near(a.dq, b.dq, 1e-12));
    CHECK(near(a.dk, b.dk, 1e-12));
    CHECK(near(a.dv, b.dv, 1e-12));
    // A keep of all keys changes the implementation but not the result.
    Mask all = mask;
    all.keep = Tensor::full({N, N}, 1, DType::u8);
    CHECK(identical(run_variant(*tiled, q, k, v, all, cotangent, pass).out, b.out));
  }
}

TEST_CASE("softmax: slopes of ALiBi are 2^(-8 (h + 1) / H)") {
  // Keys are 0: weights depend only on the distance.
  const int64_t N = 3, H = 4;
  Options options("attention");
  options.set("bias", std::string("alibi"));
  for (const char* impl : {"tiled", "naive"}) {
    options.set("impl", std::string(impl));
    const auto variant = make_variant("softmax", {.heads = H, .dim = 1, .max_length = N}, options);
    Tensor v = Tensor::zeros({1, N, H, 1}, DType::f64);
    v.slice(1, 2, 3).fill(1);
    const Tensor zeros = Tensor::zeros({1, N, H, 1}, DType::f64);
    const Tensor out =
        variant->forward(Variable(zeros), Variable(zeros), Variable(v), {}, {}).value();
    for (int64_t h = 0; h < H; ++h) {
      const double slope = std::pow(2, -2.0 * static_cast<double>(h + 1));
      const double far = std::exp(-2 * slope), near_by = std::exp(-slope);
      CHECK(out.at({0, 0, h, 0}) == Approx(far / (1 + near_by + far)));
      CHECK(out.at({0, 1, h, 0}) == Approx(near_by / (1 + 2 * near_by)));
    }
  }
}
