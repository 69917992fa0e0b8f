#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// By definition, over all rows.
double composed(const Tensor& x, const Tensor& y, double t) {
  const Variable log_p = log_softmax(Variable(x) / t), log_q = log_softmax(Variable(y) / t);
  const Variable sums = sum(exp(log_q) * (log_q - log_p), {-1});
  return t * t * mean(sums).value().item();
}

}  // namespace

TEST_CASE("kl_divergence: values") {
  // Student (1/4, 3/4), teacher (1/2, 1/2).
  const Variable x(Tensor::from<double>({0, std::log(3)}, {1, 2}));
  const Tensor y = Tensor::from<double>({5, 5}, {1, 2});
  const double by_hand = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  CHECK(kl_divergence(x, y).value().item() == Approx(by_hand).epsilon(1e-14));
  CHECK(kl_divergence(x, y, {.normalizer = 10}).value().item() ==
        Approx(by_hand / 10).epsilon(1e-14));
  // At temperature 2 the student is (1, sqrt 3) / (1 + sqrt 3).
  const double root = std::sqrt(3.0);
  CHECK(kl_divergence(x, y, {.temperature = 2}).value().item() ==
        Approx(4 * (0.5 * std::log(0.5 * (1 + root)) + 0.5 * std::log(0.5 * (1 + root) / root)))
            .epsilon(1e-14));
  for (const double t : {0.5, 1.0, 3.0})
    for (const Shape& shape : {Shape{5}, Shape{3, 5}, Shape{2, 3, 700}}) {
      const Tensor a = random(shape), b = random(shape, DType::f64, -2, 2, 9);
      CHECK(kl_divergence(Variable(a), b, {.temperature = t}).value().item() ==
            Approx(composed(a, b, t)).epsilon(1e-12));
    }
}

TEST_CASE("kl_divergence: exactly 0, with gradient 0, for equal logits") {
  const Tensor y = random({30, 37}, DType::f32, -5, 5);
  const Variable x(y.clone(), true);
  const Variable loss = kl_divergence(x, y, {.temperature = 2});
  CHECK(loss.value().item() == 0);
  backward(loss);
  CHECK(x.grad().to_vector<float>() == std::vector<float>(30 * 37, 0.0F));
}

TEST_CASE("kl_divergence: ignored rows") {
  Tensor a = random({3, 4}), b = random({3, 4}, DType::f64, -2, 2, 9);
  const Tensor targets = Tensor::from<int32_t>({1, -100, 0}, {3});
  const auto rows = [](const Tensor& t) {
    return stack({select(Variable(t), 0, 0), select(Variable(t), 0, 2)}, 0);
  };
  const double two = kl_divergence(rows(a), rows(b).value()).value().item();
  // The values in an ignored row have no effect.
  a.select(0, 1).fill(std::numeric_limits<double>::quiet_NaN());
  b.select(0, 1).fill(std::numeric_limits<double>::quiet_NaN());
  const Variable x(a, true);
  const Variable loss = kl_divergence(x, b, {.targets = targets});
  CHECK(loss.value().item() == Approx(two).epsilon(1e-14));
  backward(loss);
  const auto grad = x.grad().to_vector<double>();
  for (size_t i = 0; i < 12; ++i) CHECK((grad[i] != 0) == (i / 4 != 1));
  const Variable none = kl_divergence(x, b, {.targets = Tensor::full({3}, -100, DType::i32)});
  CHECK(none.value().item() == 0);
}

TEST_CASE("kl_divergence: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(kl_divergence(x, random({2, 4})),
                    Catch::Contains("kl_divergence") && Catch::Contains("[2, 4]"));
  CHECK_THROWS_AS(kl_divergence(x, random({2, 3}, DType::f32)), ShapeError);
  CHECK_THROWS_AS(kl_divergence(x, random({2, 3}), {.targets = Tensor::zeros({3}, DType::i32)}),
                  ShapeError);
  CHECK_THROWS_AS(kl_divergence(x, random({2, 3}), {.temperature = 0}), ConfigError);
  CHECK_THROWS_AS(kl_divergence(x, random({2, 3}), {.normalizer = 0}), ConfigError);
}
