#include "longhand/attention/analysis/measures.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/core/parallel.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

struct Results {
  Tensor out, dq, dk, dv, dg;
};

// -|x| of N(0, std²), as log decays.
Tensor decays(const Shape& shape, double std, DType dtype = DType::f64) {
  const Variable x(normal(shape, 5, dtype, std));
  return (-relu(x) - relu(-x)).value();
}

Results results(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g,
                const std::function<Variable(const Variable&, const Variable&, const Variable&,
                                             const Variable&)>& attend) {
  const Variable a(q, true), b(k, true), c(v, true), d(g, true);
  const Variable out = attend(a, b, c, d);
  backward(out, normal(out.shape(), 4, q.dtype()));
  return {out.value(), a.grad(), b.grad(), c.grad(), d.grad()};
}

Results of_tiles(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g,
                 const attention::SoftmaxAttentionOptions& options) {
  return results(q, k, v, g,
                 [&](const Variable& a, const Variable& b, const Variable& c, const Variable& d) {
                   attention::SoftmaxAttentionOptions all = options;
                   all.causal = true;
                   all.log_decay = d;
                   return attention::softmax_attention(a, b, c, all);
                 });
}

}  // namespace

TEST_CASE("forgetting: the tiles equal the definition, with gradients") {
  const int64_t N = GENERATE(1, 7, 50, 203);
  const double std = GENERATE(0.01, 2.0);
  const auto n = static_cast<int32_t>(N);
  const Tensor ends = GENERATE_COPY(Tensor(), Tensor::from(std::vector<int32_t>{n, n / 2}, {2}));
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3), g = decays({2, N, 2}, std);
  const Results tiled = of_tiles(q, k, v, g, {.key_lengths = ends, .query_lengths = ends});
  const Results expected = results(
      q, k, v, g, [&](const Variable& a, const Variable& b, const Variable& c, const Variable& d) {
        const Tensor seen =
            attention::definitions::visible(N, N, {.causal = true, .lengths = ends});
        return attention::definitions::apply(attention::definitions::forgetting(a, b, d, seen), c);
      });
  CHECK(near(tiled.out, expected.out, 1e-12));
  CHECK(near(tiled.dq, expected.dq, 1e-12));
  CHECK(near(tiled.dk, expected.dk, 1e-12));
  CHECK(near(tiled.dv, expected.dv, 1e-12));
  CHECK(near(tiled.dg, expected.dg, 1e-11));
}

TEST_CASE("forgetting: decays of any strides, heads that share keys, any number of threads") {
  const int64_t N = 400;
  const Tensor q = normal({2, N, 4, 8}, 1), k = normal({2, N, 2, 8}, 2),
               v = normal({2, N, 2, 8}, 3), g = decays({2, N, 4}, 0.1);
  const Results plain = of_tiles(q, k, v, g, {});
  // Tokens last, and every second of them.
  Tensor holes = decays({2, 4, 2 * N}, 1).slice(2, 0, 2 * N, 2).transpose(1, 2);
  copy_into(holes, g);
  const int before = threads();
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    const Results other = of_tiles(q, k, v, count == 2 ? holes : g, {});
    for (const auto& [a, b] : {std::pair(plain.out, other.out), std::pair(plain.dq, other.dq),
                               std::pair(plain.dk, other.dk), std::pair(plain.dv, other.dv),
                               std::pair(plain.dg, other.dg)})
      CHECK(identical(a, b));
  }
  set_threads(before);
}

TEST_CASE("forgetting: long sums of decays keep the digits of near keys, in f32") {
  // At the end G is near -N std: its f32 sums would be known to 0.004 only.
  const int64_t N = 8192;
  const double std = GENERATE(1e-5, 0.1, 8.0);
  const auto all = [&](DType dtype) {
    return of_tiles(normal({1, N, 1, 8}, 1).to(dtype), normal({1, N, 1, 8}, 2).to(dtype),
                    normal({1, N, 1, 8}, 3).to(dtype), decays({1, N, 1}, std).to(dtype), {});
  };
  const Results f32 = all(DType::f32), f64 = all(DType::f64);
  CHECK(attention::analysis::relative_error(f32.out.slice(1, N - 64, N),
                                            f64.out.slice(1, N - 64, N)) <= 1e-5);
  CHECK(attention::analysis::relative_error(f32.out, f64.out) <= 1e-5);
  CHECK(attention::analysis::relative_error(f32.dq, f64.dq) <= 1e-5);
  CHECK(attention::analysis::relative_error(f32.dk, f64.dk) <= 1e-5);
  CHECK(attention::analysis::relative_error(f32.dv, f64.dv) <= 1e-5);
  CHECK(attention::analysis::relative_error(f32.dg, f64.dg) <= 1e-4);
}

TEST_CASE("forgetting: what the operation refuses") {
  const Variable q(normal({1, 4, 2, 4}, 1)), g(Tensor::zeros({1, 4, 2}, DType::f64));
  const auto attend = [&](const Variable& decay, bool causal) {
    return attention::softmax_attention(q, q, q, {.causal = causal, .log_decay = decay});
  };
  CHECK_NOTHROW(attend(g, true));
  CHECK_THROWS_AS(attend(g, false), ConfigError);
  CHECK_THROWS_AS(attend(Variable(Tensor::zeros({1, 4}, DType::f64)), true), ShapeError);
  CHECK_THROWS_AS(attend(Variable(Tensor::zeros({1, 4, 2}, DType::f32)), true), ShapeError);
}
