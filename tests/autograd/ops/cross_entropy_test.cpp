#include "longhand/autograd/ops.h"
#include "longhand/core/storage.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor targets_of(const Shape& shape, int64_t classes) {
  Tensor t = Tensor::empty(shape, DType::i32);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>(
        RandomStream(Generator(4), static_cast<uint64_t>(i)).below(static_cast<uint64_t>(classes)));
  return t;
}

// By definition: - sum over rows and classes of q log softmax(x), q = (1 - e) [j = t] + e / C.
Variable composed(const Variable& logits, const Tensor& targets, double e) {
  Tensor q = Tensor::empty(logits.shape(), logits.dtype());
  const int64_t classes = logits.size(-1);
  const auto t = targets.to_vector<int32_t>();
  for (int64_t i = 0; i < q.numel(); ++i)
    q.data<double>()[i] =
        e / static_cast<double>(classes) + (i % classes == t[i / classes] ? 1 - e : 0);
  return sum(log_softmax(logits) * Variable(q)) * (-1.0 / static_cast<double>(t.size()));
}

}  // namespace

TEST_CASE("cross_entropy: values") {
  const Variable x(Tensor::from<double>({0, std::log(3), 7, 7}, {2, 2}));
  const Tensor targets = Tensor::from<int32_t>({1, 0}, {2});
  CHECK(cross_entropy(x, targets).value().item() ==
        Approx((-std::log(0.75) - std::log(0.5)) / 2).epsilon(1e-14));
  CHECK(cross_entropy(x, targets, {.normalizer = 10}).value().item() ==
        Approx((-std::log(0.75) - std::log(0.5)) / 10).epsilon(1e-14));
  for (double e : {0.0, 0.1, 1.0})
    for (const Shape& shape : {Shape{5}, Shape{3, 5}, Shape{2, 3, 700}}) {
      const Variable logits(random(shape));
      const Tensor t = targets_of(shape.without_axis(-1), shape[-1]);
      CHECK(cross_entropy(logits, t, {.label_smoothing = e}).value().item() ==
            Approx(composed(logits, t, e).value().item()).epsilon(1e-13));
    }
  // f32 rows far from zero lose nothing.
  const Variable far(Tensor::from<float>({10000, 10001}, {1, 2}));
  CHECK(cross_entropy(far, Tensor::from<int32_t>({1}, {1})).value().item() ==
        Approx(std::log1p(std::exp(-1.0))).epsilon(1e-6));
}

TEST_CASE("cross_entropy: ignored targets") {
  const Variable x(random({4, 3}), true);
  const auto loss = [&](const std::vector<int32_t>& t, const CrossEntropyOptions& options = {}) {
    return cross_entropy(x, Tensor::from(t, {4}), options);
  };
  const double two = loss({2, -100, 0, -100}).value().item();
  const Variable rows = stack({select(x, 0, 0), select(x, 0, 2)}, 0);
  CHECK(two == Approx(cross_entropy(rows, Tensor::from<int32_t>({2, 0}, {2})).value().item()));
  CHECK(loss({2, 1, 0, 1}, {.ignore_index = 1}).value().item() == two);
  const Variable none = loss({-100, -100, -100, -100});
  CHECK(none.value().item() == 0);
  backward(none);
  CHECK(x.grad().to_vector<double>() == std::vector<double>(12, 0.0));
  // The values in an ignored row have no effect.
  Tensor bad = random({2, 3});
  bad.select(0, 1).fill(std::numeric_limits<double>::quiet_NaN());
  const Variable y(bad, true);
  backward(cross_entropy(y, Tensor::from<int32_t>({1, -100}, {2})));
  for (double g : y.grad().to_vector<double>()) CHECK(std::isfinite(g));
}

TEST_CASE("cross_entropy: no second tensor of the size of the logits in the forward pass") {
  const Variable x(random({1000, 500}, DType::f32), true);
  const Tensor targets = targets_of({1000}, 500);
  const size_t before = memory_stats().in_use;
  const Variable loss = cross_entropy(x, targets);
  CHECK(memory_stats().in_use - before <= 20000);
  backward(loss);
}

TEST_CASE("cross_entropy: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(cross_entropy(x, Tensor::from<int32_t>({0, 3}, {2})),
                    Catch::Contains("cross_entropy") && Catch::Contains("target 3 at position 1") &&
                        Catch::Contains("3 classes"));
  CHECK_THROWS_AS(cross_entropy(x, Tensor::from<int32_t>({0, -1}, {2})), ShapeError);
  CHECK_THROWS_AS(cross_entropy(x, Tensor::from<int32_t>({0, 1, 2}, {3})), ShapeError);
  CHECK_THROWS_AS(cross_entropy(x, Tensor::zeros({2}, DType::i64)), ShapeError);
  const Tensor t = Tensor::zeros({2}, DType::i32);
  CHECK_THROWS_AS(cross_entropy(x, t, {.label_smoothing = 1.5}), ConfigError);
  CHECK_THROWS_AS(cross_entropy(x, t, {.normalizer = 0}), ConfigError);
}
