// Efficient attention whose keys are large: every entry of the state has a scale of its own.
#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;
namespace def = longhand::attention::definitions;

TEST_CASE("efficient: large keys, at once, token by token and by definition") {
  const DType dtype = GENERATE(DType::f64, DType::f32);
  const int64_t N = 100;
  Options options("attention");
  options.set("projection", std::string("none"));
  const auto variant = make_variant(
      "performer", {.heads = 1, .max_length = N, .causal = true, .dtype = dtype}, options);
  const Tensor q = normal({1, N, 1, 4}, 1, dtype, 2), v = normal({1, N, 1, 4}, 3, dtype);
  Tensor k = normal({1, N, 1, 4}, 2, dtype, 3);
  // Far above all before, in one block, and by different amounts.
  k.slice(1, 55, 56).fill(120);
  k.slice(1, 60, 61).slice(3, 0, 2).fill(121);
  k.slice(1, 70, 71).fill(200);
  const auto exact = [](const Tensor& x) { return Variable(x.to(DType::f64)); };
  const Tensor expected =
      def::apply(def::efficient(exact(q), exact(k), def::visible(N, N, {.causal = true})), exact(v))
          .value();
  const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-5;
  const Variable vk(k, true), vq(q, true);
  const Variable out = variant->forward(vq, vk, Variable(v), {}, {});
  CHECK(near(out.value(), expected, tolerance));
  backward(out, Tensor::full(out.shape(), 1, dtype));
  CHECK(all_finite(vk.grad()));
  CHECK(all_finite(vq.grad()));
  const auto decoder = variant->decoder(1);
  for (int64_t t = 0; t < N; ++t)
    CHECK(near(decoder->step(q.select(1, t), k.select(1, t), v.select(1, t)), expected.select(1, t),
               tolerance));
}
