#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options nystrom(int64_t landmarks, int64_t iterations = 6, int64_t conv = 0) {
  Options options("attention");
  options.set("landmarks", landmarks);
  options.set("pinv_iterations", iterations);
  options.set("conv_kernel", conv);
  return options;
}

Tensor forward(attention::Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v,
               const Mask& mask = {}) {
  return variant.forward(Variable(q), Variable(k), Variable(v), mask, {}).value();
}

// Every token twice, in a row.
Tensor doubled(const Tensor& x) {
  const Shape& s = x.shape();
  return x.unsqueeze(2)
      .expand({s[0], s[1], 2, s[2], s[3]})
      .contiguous()
      .reshape({s[0], 2 * s[1], s[2], s[3]});
}

}  // namespace

TEST_CASE("nystrom of at most m tokens is softmax") {
  const int64_t N = GENERATE(1, 5, 8);
  const auto variant = make_variant("nystrom", {}, nystrom(8));
  const auto softmax = make_variant("softmax");
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3), c = normal({2, N, 2, 4}, 4);
  const Outcome a = run_variant(*variant, q, k, v, {}, c),
                b = run_variant(*softmax, q, k, v, {}, c);
  CHECK(near(a.out, b.out, 1e-14));
  CHECK(near(a.dq, b.dq, 1e-14));
  CHECK(near(a.dk, b.dk, 1e-14));
  CHECK(near(a.dv, b.dv, 1e-14));
}

TEST_CASE("nystrom: samples of at most m tokens are exact, the others of the batch are not") {
  const auto variant = make_variant("nystrom", {}, nystrom(4));
  const auto softmax = make_variant("softmax");
  const Tensor q = normal({4, 13, 2, 4}, 1, DType::f64, 2),
               k = normal({4, 13, 2, 4}, 2, DType::f64, 2), v = normal({4, 13, 2, 4}, 3);
  const Mask mask = lengths({13, 4, 5, 2});
  const Tensor a = forward(*variant, q, k, v, mask), b = forward(*softmax, q, k, v, mask);
  CHECK_FALSE(near(one(a, 0, 13), one(b, 0, 13), 1e-3));
  CHECK(near(one(a, 1, 4), one(b, 1, 4), 1e-13));
  CHECK_FALSE(near(one(a, 2, 5), one(b, 2, 5), 1e-4));
  CHECK(near(one(a, 3, 2), one(b, 3, 2), 1e-13));
}

// With each token twice, segments of two are the tokens themselves: F, A and G are then blocks of
// the same matrix, and F A⁺ G is exact attention.
TEST_CASE("nystrom: with tokens for landmarks, iterations converge to softmax") {
  const int64_t m = 6;
  const Tensor q = doubled(normal({2, m, 2, 4}, 1)), k = doubled(normal({2, m, 2, 4}, 2)),
               v = doubled(normal({2, m, 2, 4}, 3));
  const Tensor exact = forward(*make_variant("softmax"), q, k, v);
  const auto error = [&](int64_t iterations) {
    const Tensor out = forward(*make_variant("nystrom", {}, nystrom(m, iterations)), q, k, v);
    double worst = 0;
    for (int64_t i = 0; i < out.numel(); ++i)
      worst = std::max(worst, std::abs(out.data<double>()[i] - exact.data<double>()[i]));
    return worst;
  };
  INFO(error(2) << ", " << error(6) << ", " << error(40));
  CHECK(error(40) <= 1e-8);
  CHECK(error(6) <= error(2));
  CHECK(error(2) >= 1e-6);
}

TEST_CASE("nystrom with one landmark is an average weighted by the mean query") {
  const int64_t N = 9;
  const auto variant = make_variant("nystrom", {}, nystrom(1));
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  // F and A are 1, and so is A's inverse.
  const Tensor mean_query = broadcast_to(mean(Variable(q), {1}, true), {2, N, 2, 4}).value();
  CHECK(near(forward(*variant, q, k, v), naive_kernel_attention(mean_query, k, v, softmax_kernel),
             1e-13));
}

TEST_CASE("nystrom: the convolution runs along the tokens of each head, zeros outside") {
  const int64_t B = 2, N = 7, H = 2, D = 4;
  const auto with = make_variant("nystrom", {}, nystrom(4, 6, 3));
  const auto without = make_variant("nystrom", {}, nystrom(4, 6, 0));
  const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, H, D}, 2),
               v = normal({B, N, H, D}, 3);
  const Mask mask = lengths({7, 3});
  const Tensor a = forward(*with, q, k, v, mask), b = forward(*without, q, k, v, mask);
  const Tensor w = with->state_dict().at("conv");
  REQUIRE(w.shape() == Shape{H, 3});
  const int64_t n[] = {7, 3};
  for (int64_t s = 0; s < B; ++s)
    for (int64_t t = 0; t < n[s]; ++t)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t d = 0; d < D; ++d) {
          double sum = b.at({s, t, h, d});
          for (int64_t j = 0; j < 3; ++j)
            if (t + j - 1 >= 0 && t + j - 1 < n[s])
              sum += w.at({h, j}) * v.at({s, t + j - 1, h, d});
          CHECK(a.at({s, t, h, d}) == Approx(sum).margin(1e-12));
        }
}

TEST_CASE("nystrom: large scores stay finite") {
  const auto variant = make_variant("nystrom", {.dtype = DType::f32});
  const Shape shape{2, 13, 2, 4};
  const Outcome o =
      run_variant(*variant, normal(shape, 1, DType::f32, 50), normal(shape, 2, DType::f32, 50),
                  normal(shape, 3, DType::f32), {}, normal(shape, 4, DType::f32));
  CHECK(all_finite(o.out));
  CHECK(all_finite(o.dq));
  CHECK(all_finite(o.dk));
}
