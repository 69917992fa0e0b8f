#include "longhand/train/step/ema.h"

#include <algorithm>
#include <cmath>

#include "longhand/core/random.h"
#include "tests/support/catch.h"

namespace longhand::train {
namespace {

Parameters parameters(DType dtype) {
  Tensor a = Tensor::empty({3, 5}, dtype), b = Tensor::empty({2}, dtype);
  fill_normal(a, Generator(1));
  fill_normal(b, Generator(2));
  return {{"a", Variable(a, true)}, {"b", Variable(b, true)}};
}

}  // namespace

TEST_CASE("the average follows its formula") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  Parameters p = parameters(dtype);
  Ema ema(p, 0.7);
  std::vector<double> expected = p[0].second.value().to_vector<double>();
  for (int t = 1; t <= 40; ++t) {
    fill_normal(p[0].second.mutable_value(), Generator(10 + t));
    ema.update(t);
    const auto theta = p[0].second.value().to_vector<double>();
    const double d = std::min(0.7, (1.0 + t) / (10.0 + t));
    for (size_t i = 0; i < theta.size(); ++i) expected[i] = d * expected[i] + (1 - d) * theta[i];
  }
  const auto found = ema.state_dict().at("a").to_vector<double>();
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(found[i] - expected[i]) <= (dtype == DType::f64 ? 1e-13 : 1e-6));
  for (int i = 0; i < 2; ++i)  // the average of constant weights
    CHECK(ema.state_dict().at("b").at({i}) == Approx(p[1].second.value().at({i})));
}

TEST_CASE("the weights of a long average sum to 1") {
  constexpr double decay = 0.99999;
  constexpr int64_t first = 10'000'000;  // where the average has its full length
  Parameters p = parameters(DType::f32);
  Ema ema(p, decay);
  const std::vector<double> begin = p[0].second.value().to_vector<double>();
  std::vector<double> expected = begin;
  Tensor& theta = p[0].second.mutable_value();
  for (int64_t t = 0; t < 200'000; ++t) {
    const double factor = t % 2 ? 1.25 : 0.75;  // exact in f32
    for (int64_t i = 0; i < theta.numel(); ++i) {
      theta.data<float>()[i] = static_cast<float>(begin[i] * factor);
      expected[i] += (1 - decay) * (static_cast<double>(theta.data<float>()[i]) - expected[i]);
    }
    ema.update(first + t);
  }
  const auto found = ema.state_dict().at("a").to_vector<double>();
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(found[i] - expected[i]) <= 2e-5 * std::abs(expected[i]));
  // The average of constant weights equals them, to the bit.
  CHECK(identical(ema.state_dict().at("b"), p[1].second.value()));
}

TEST_CASE("a swap exchanges averages and weights, and back") {
  Parameters p = parameters(DType::f32);
  Ema ema(p, 0.9);
  const Tensor average = p[0].second.value().clone();
  p[0].second.mutable_value().fill(3);
  {
    const Ema::Swap swap(ema);
    CHECK(identical(p[0].second.value(), average));
    CHECK(ema.state_dict().at("a").at({2, 4}) == 3);
  }
  CHECK(p[0].second.value().at({0, 0}) == 3);
  CHECK(identical(ema.state_dict().at("a"), average));
}

TEST_CASE("averages are saved and loaded") {
  Parameters p = parameters(DType::f32);
  Ema a(p, 0.9);
  p[0].second.mutable_value().fill(3);
  a.update(1);
  Ema b(p, 0.9);
  REQUIRE_FALSE(identical(a.state_dict().at("a"), b.state_dict().at("a")));
  b.load_state_dict(a.state_dict());
  CHECK(identical(a.state_dict().at("a"), b.state_dict().at("a")));
  CHECK_THROWS_WITH(b.load_state_dict({}), Catch::Contains("a is missing\n  b is missing"));
  CHECK_THROWS_AS(Ema(p, 0), ConfigError);
  CHECK_THROWS_AS(Ema(p, 1), ConfigError);
}

}  // namespace longhand::train
