#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("max: values") {
  const Variable x(Tensor::from<double>({1, 7, 3, 4, 5, -6}, {2, 3}));
  CHECK(max(x, 1).value().to_vector<double>() == std::vector<double>{7, 5});
  CHECK(max(x, -2).value().to_vector<double>() == std::vector<double>{4, 7, 3});
  CHECK(max(x, 1, true).shape() == Shape{2, 1});
  for (const Shape& shape : {Shape{2, 3, 5}, Shape{3, 300, 2}, Shape{2, 3, 300}, Shape{1, 1, 7}}) {
    const Tensor t = random(shape);
    for (Layout layout : {Layout::row_major, Layout::reversed, Layout::holes_stride_2}) {
      for (int axis = 0; axis < 3; ++axis) {
        const Tensor found = max(Variable(with_layout(t, layout)), axis).value();
        Tensor expected = t.select(axis, 0).clone();
        for (int64_t k = 1; k < shape[axis]; ++k) {
          auto best = expected.to_vector<double>(), other = t.select(axis, k).to_vector<double>();
          for (size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], other[i]);
          expected = Tensor::from(best, expected.shape());
        }
        INFO(shape << " layout " << static_cast<int>(layout) << " axis " << axis);
        CHECK(identical(found.contiguous(), expected));
      }
    }
  }
}

TEST_CASE("max: the first of equal maxima, and NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values{2,   5,   5, 1, -inf, -inf, -inf, -inf,
                                   nan, inf, 3, 4, 3,    4,    nan,  nan};
  const std::vector<double> first{0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0};
  for (int axis : {0, 1}) {
    const Tensor rows = Tensor::from(values, {4, 4});
    const Variable x(axis == 1 ? rows : rows.transpose(0, 1).contiguous(), true);
    const Variable y = max(x, axis);
    const auto found = y.value().to_vector<double>();
    CHECK(found[0] == 5);
    CHECK(found[1] == -inf);
    CHECK(std::isnan(found[2]));
    CHECK(std::isnan(found[3]));
    backward(y, Tensor::full({4}, 1, DType::f64));
    CHECK((axis == 1 ? x.grad() : x.grad().transpose(0, 1)).to_vector<double>() == first);
  }
}

TEST_CASE("max: errors") {
  CHECK_THROWS_WITH(max(Variable(Tensor::zeros({3, 0}, DType::f64)), 1),
                    Catch::Contains("max") && Catch::Contains("[3, 0]"));
  CHECK_THROWS_AS(max(Variable(random({3})), 1), ShapeError);
}
