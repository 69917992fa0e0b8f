#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// By definition, composed of other operations.
Variable composed(const Variable& x, const Variable& w, const Variable& b, double eps) {
  const Variable centred = x - mean(x, {-1}, true);
  return centred / sqrt(mean(square(centred), {-1}, true) + eps) * w + b;
}

}  // namespace

TEST_CASE("layer_norm: values") {
  const Tensor x = random({3, 7}), w = random({7}, DType::f64, 1, 2, 5), b = random({7});
  CHECK(close(layer_norm(Variable(x), Variable(w), Variable(b), 0.1).value(),
              composed(Variable(x), Variable(w), Variable(b), 0.1).value(), 1e-13));
  // The mean is subtracted before the variance is computed: a large offset costs few digits.
  const Tensor far = affine(Variable(x.to(DType::f32)), 1, 1000).value();
  CHECK(close(layer_norm(Variable(far), {}, {}).value(), layer_norm(Variable(x), {}, {}).value(),
              1e-3));
  // A row of equal numbers has variance 0.
  CHECK(layer_norm(Variable(Tensor::full({2, 3}, 5)), {}, {}).value().to_vector<float>() ==
        std::vector<float>(6, 0.0f));
}

TEST_CASE("layer_norm: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(layer_norm(x, Variable(random({2})), {}), Catch::Contains("layer_norm") &&
                                                                  Catch::Contains("[2]") &&
                                                                  Catch::Contains("[2, 3]"));
  CHECK_THROWS_AS(layer_norm(Variable(Tensor::scalar(1)), {}, {}), ShapeError);
  CHECK_THROWS_AS(layer_norm(x, {}, {}, -1), ConfigError);
}
