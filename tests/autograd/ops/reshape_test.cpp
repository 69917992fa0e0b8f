#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("reshape: values, -1, views and copies") {
  const Variable x(random({2, 3, 4}));
  const Variable y = reshape(x, {6, -1});
  CHECK(y.shape() == Shape{6, 4});
  CHECK(y.value().shares_memory_with(x.value()));
  CHECK(y.value().to_vector<double>() == x.value().to_vector<double>());
  // Merging heads, (B, H, T, D) to (B, T, H D), requires a copy; splitting them does not.
  const Variable heads(random({2, 3, 5, 4}).permute({0, 2, 1, 3}));
  const Variable merged = reshape(heads, {2, 5, 12});
  CHECK_FALSE(merged.value().shares_memory_with(heads.value()));
  CHECK(merged.value().to_vector<double>() == heads.value().to_vector<double>());
  CHECK(reshape(Variable(random({2, 5, 12}).slice(2, 0, 8)), {2, 5, 2, 4}).value().shape() ==
        Shape{2, 5, 2, 4});
}

TEST_CASE("reshape: the gradient is a view if strides allow") {
  const Variable x(Tensor::full({1 << 9, 1 << 8}, 1, DType::f64), true);
  const Tensor seed = Tensor::full({1 << 17}, 1, DType::f64);
  const Variable h = x + 1.0;
  Tensor seen;
  const Variable probe =
      record("probe", h.value(), {h}, [&](const Tensor& dy, std::span<GradSlot> dx) {
        seen = dy;
        dx[0].take(dy);
      });
  backward(reshape(probe, {-1}), seed);
  CHECK(seen.shares_memory_with(seed));
}

TEST_CASE("reshape: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(reshape(x, {4, 2}), Catch::Contains("reshape") && Catch::Contains("[2, 3]") &&
                                            Catch::Contains("[4, 2]"));
  CHECK_THROWS_AS(reshape(x, {-1, -1}), ShapeError);
  CHECK_THROWS_AS(reshape(x, {4, -1}), ShapeError);
}
