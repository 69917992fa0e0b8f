#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace def = longhand::attention::definitions;

namespace {

Row soft(Row x) {
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value);
  for (double& value : x) value /= sum;
  return x;
}

Tensor naive_efficient(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                       const Mask& mask) {
  const auto attend = [](const Row& query, const std::vector<Row>& keys,
                         const std::vector<Row>& values, double* out) {
    const Row rho = soft(query);
    for (size_t d = 0; d < query.size(); ++d) {
      double z = 0;
      for (const Row& key : keys) z += std::exp(key[d]);
      for (size_t j = 0; j < keys.size(); ++j)
        for (size_t c = 0; c < values[j].size(); ++c)
          out[c] += rho[d] * std::exp(keys[j][d]) / z * values[j][c];
    }
  };
  return naive_attention(q, k, v, attend, causal, mask);
}

}  // namespace

TEST_CASE("efficient equals its N x N form, with its gradients") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 64, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO("causal " << causal << " N " << N << " lengths " << mask.lengths.defined());
  const Tensor q = normal({2, N, 2, 4}, 1, DType::f64, 2),
               k = normal({2, N, 2, 4}, 2, DType::f64, 2), v = normal({2, N, 2, 4}, 3);
  const auto variant = make_variant("efficient", {.max_length = N, .causal = causal});
  CHECK(near(forward(*variant, q, k, v, mask), naive_efficient(q, k, v, causal, mask), 1e-12));
  GradcheckOptions checks;
  checks.max_elements = 40;
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {q, k, v}, checks);
  INFO(report);
  CHECK(report.ok);
  CHECK_FALSE(variant->capabilities().random);
  CHECK(variant->state_dict().empty());
}

TEST_CASE("efficient: later tokens do not change any bit of causal rows") {
  const int64_t N = 140;
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const auto variant = make_variant("efficient", {.max_length = N, .causal = true, .dtype = dtype});
  const Shape shape{1, N, 2, 4};
  const Tensor q = normal(shape, 1, dtype), v = normal(shape, 3, dtype);
  Tensor k = normal(shape, 2, dtype);
  const Tensor before = forward(*variant, q, k, v);
  for (const int64_t j : {1, 40, 64, 129}) {
    k.slice(1, j, j + 1).fill(60);  // far larger than all before
    const Tensor after = forward(*variant, q, k, v);
    CHECK(identical(after.slice(1, 0, j).contiguous(), before.slice(1, 0, j).contiguous()));
    CHECK(all_finite(after));
    // From here on this key has the whole weight.
    CHECK(near(after.slice(1, j, j + 1), v.slice(1, j, j + 1), 1e-6));
    copy_into(k, normal(shape, 2, dtype));
  }
}

TEST_CASE("efficient: decoding gives the rows of the whole sequence, for keys of any size") {
  const int64_t N = 140;
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const double scale = GENERATE(1.0, 100.0, 1000.0);
  INFO(dtype << " keys of " << scale << " N(0, 1)");
  const auto variant = make_variant("efficient", {.max_length = N, .causal = true, .dtype = dtype});
  const Shape shape{1, N, 2, 4};
  const Tensor q = normal(shape, 1, dtype), k = normal(shape, 2, dtype, scale),
               v = normal(shape, 3, dtype);
  const Tensor all = forward(*variant, q, k, v);
  const auto decoder = variant->decoder(1);
  for (int64_t i = 0; i < N; ++i) {
    INFO("token " << i);
    CHECK(near(decoder->step(q.select(1, i), k.select(1, i), v.select(1, i)), all.select(1, i),
               dtype == DType::f32 ? 1e-4 : 1e-10));
  }
}

TEST_CASE("efficient: large keys, in one pass, token by token and by definition") {
  const DType dtype = GENERATE(DType::f64, DType::f32);
  const int64_t N = 100;
  const auto variant =
      make_variant("efficient", {.heads = 1, .max_length = N, .causal = true, .dtype = dtype});
  const Tensor q = normal({1, N, 1, 4}, 1, dtype, 2), v = normal({1, N, 1, 4}, 3, dtype);
  Tensor k = normal({1, N, 1, 4}, 2, dtype, 3);
  // Far larger than all before, in one block, and by different amounts.
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
