#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options lowrank(int64_t rank, bool softmax) {
  Options options("attention");
  options.set("rank", rank);
  options.set("softmax", softmax);
  return options;
}

Tensor defined(attention::Variant& variant, const Tensor& x, const Mask& mask, bool softmax,
               bool causal) {
  const int64_t N = x.size(1);
  const auto rows = [&](const char* name) {
    return Variable(variant.state_dict().at(name).slice(1, 0, N));
  };
  const Tensor visible =
      attention::definitions::visible(N, N, {.causal = causal, .lengths = mask.lengths});
  return attention::definitions::apply(
             attention::definitions::lowrank(rows("u"), rows("v"), softmax, visible), Variable(x))
      .value();
}

}  // namespace

TEST_CASE("lowrank: weights U V^T of positions, as defined") {
  const bool softmax = GENERATE(false, true), causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 13, 64, 150);
  const auto variant =
      make_variant("lowrank", {.max_length = N + 3, .causal = causal}, lowrank(3, softmax));
  const Tensor x = normal({4, N, 2, 4}, 3);
  const auto full = static_cast<int32_t>(N);
  for (const std::vector<int32_t>& n :
       {std::vector<int32_t>{full, full, full, full}, {full, full / 2, 1, 0}}) {
    const Mask mask = lengths(n);
    const Tensor out = variant->forward(Variable(x), Variable(x), Variable(x), mask, {}).value();
    CHECK(near(out, defined(*variant, x, mask, softmax, causal), 1e-12));
  }
}

TEST_CASE("lowrank: gradients, including U and V, over several blocks") {
  const bool softmax = GENERATE(false, true), causal = GENERATE(false, true);
  const auto variant =
      make_variant("lowrank", {.dim = 2, .max_length = 70, .causal = causal}, lowrank(2, softmax));
  const Mask mask = lengths({67, 3});
  const Tensor x = normal({2, 67, 2, 2}, 3);
  const auto f = [&](const Variables& in) {
    return variant->forward(Variable(x), Variable(x), in[0], mask, {});
  };
  const GradcheckReport report = gradcheck(f, {x}, {.max_elements = 60});
  INFO(report);
  CHECK(report.ok);
  check_parameters(*variant, [&] { return f({Variable(x)}); });
}

TEST_CASE("lowrank: with a softmax it averages values, at quadratic cost") {
  const auto linear = make_variant("lowrank", {}, lowrank(3, false)),
             square = make_variant("lowrank", {}, lowrank(3, true));
  CHECK_FALSE(linear->capabilities().averages);
  CHECK(square->capabilities().averages);
  CHECK(linear->work(2048, 2048).forward.flops == 2 * linear->work(1024, 1024).forward.flops);
  CHECK(square->work(2048, 2048).forward.flops == 4 * square->work(1024, 1024).forward.flops);
  CHECK(linear->parameter_count() == 2 * 2 * 16 * 3);
  // Initially, sums over all positions have the variance of one value.
  const int64_t N = 400;
  const auto variant = make_variant("lowrank", {.heads = 4, .max_length = N}, lowrank(8, false));
  const Variable x(normal({1, N, 4, 4}, 1, DType::f64, 1));
  const double variance = mean(longhand::square(variant->forward(x, x, x, {}, {}))).value().item();
  INFO(variance);
  CHECK((variance > 0.5 && variance < 2));
  Options options = lowrank(3, true);
  options.set("dropout", 0.5);
  CHECK_NOTHROW(make_variant("lowrank", {}, options));
}

TEST_CASE("lowrank: token by token") {
  const auto variant =
      make_variant("lowrank", {.max_length = 70, .causal = true}, lowrank(3, false));
  const Tensor x = normal({2, 70, 2, 4}, 1);
  const Tensor all = variant->forward(Variable(x), Variable(x), Variable(x), {}, {}).value();
  const auto decoder = variant->decoder(2);
  for (int64_t i = 0; i < 70; ++i)
    CHECK(near(decoder->step(x.select(1, i), x.select(1, i), x.select(1, i)), all.select(1, i),
               1e-13));
  CHECK(decoder->bytes() == 2 * 2 * 3 * 4 * 8);
  CHECK_THROWS_AS(decoder->step(x.select(1, 0), x.select(1, 0), x.select(1, 0)), ShapeError);
  const auto softmax = make_variant("lowrank", {.causal = true}, lowrank(3, true));
  CHECK_FALSE(softmax->capabilities().decodes);
  CHECK_THROWS_AS(softmax->decoder(1), ConfigError);
}

TEST_CASE("lowrank: sequences longer than max_length are refused") {
  const auto variant = make_variant("lowrank", {.max_length = 8});
  const Variable x(normal({1, 9, 2, 4}, 1));
  CHECK_THROWS_WITH(variant->forward(x, x, x, {}, {}),
                    Catch::Contains("9") && Catch::Contains("8"));
}
