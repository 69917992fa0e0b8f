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

struct Gate {
  GateFunction function;
  Variable (*apply)(const Variable&);
};

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

TEST_CASE("rms_norm: values") {
  const Variable x(Tensor::from<double>({3, 4, 0, 0}, {2, 2}));
  const Variable w(Tensor::from<double>({10, 1}, {2}));
  const double r = 1 / std::sqrt(12.5 + 0.5);
  CHECK(close(rms_norm(x, w, 0.5).value(), Tensor::from<double>({30 * r, 4 * r, 0, 0}, {2, 2}),
              1e-15));
}

TEST_CASE("silu_rms_norm: is rms_norm of silu") {
  const Variable x(random({2, 19, 5})), w(random({5}));
  CHECK(close(silu_rms_norm(x, w, 0.1).value(), rms_norm(silu(x), w, 0.1).value(), 1e-14));
}

TEST_CASE("rms_norm: errors") {
  CHECK_THROWS_WITH(rms_norm(Variable(random({2, 3})), Variable(random({2}))),
                    Catch::Contains("rms_norm"));
}

TEST_CASE("gated: what its parts give, one after the other") {
  const Gate gate = GENERATE(Gate{GateFunction::silu, silu}, Gate{GateFunction::sigmoid, sigmoid});
  const Variable x(random({19, 37}, DType::f64, -2, 2, 1)),
      z(random({19, 37}, DType::f64, -2, 2, 2)), w(random({37}, DType::f64, 1, 2, 3)),
      b(random({37}, DType::f64, -2, 2, 4));
  const auto found = [&](const GatedOptions& options) { return gated(x, z, options).value(); };
  const Variable f = gate.apply(z);
  CHECK(close(found({gate.function}), (x * f).value(), 1e-15));
  const NormOptions centred{w, b, 0.1}, of_squares{.weight = w, .eps = 0.1, .centred = false};
  CHECK(close(found({gate.function, centred}), (layer_norm(x, w, b, 0.1) * f).value(), 1e-14));
  CHECK(close(found({gate.function, of_squares}), (rms_norm(x, w, 0.1) * f).value(), 1e-14));
  CHECK(close(found({gate.function, centred, true}), layer_norm(x * f, w, b, 0.1).value(), 1e-14));
  CHECK(close(found({gate.function, of_squares, true}), rms_norm(x * f, w, 0.1).value(), 1e-14));
  CHECK(identical(gated(x, {}, {.norm = of_squares}).value(), rms_norm(x, w, 0.1).value()));
  CHECK(gated(x, {}).value().shares_memory_with(x.value()));
}

TEST_CASE("gated: operands without another owner become the gradients, with the same bits") {
  const bool last = GENERATE(false, true);
  Variable x(random({300, 65}, DType::f32, -2, 2, 1), true),
      z(random({300, 65}, DType::f32, -2, 2, 2), true);
  const auto gradients = [&](bool keep) {
    x.zero_grad();
    z.zero_grad();
    Variable a = affine(x, 2), b = affine(z, 2);
    const Variable y = gated(a, b, {.norm = NormOptions{.centred = false}, .norm_last = last});
    if (!keep) a = {}, b = {};
    backward(sum(square(y)));
    return std::pair(x.grad().clone(), z.grad().clone());
  };
  const auto in_place = gradients(false), apart = gradients(true);
  CHECK(identical(in_place.first, apart.first));
  CHECK(identical(in_place.second, apart.second));
}

TEST_CASE("gated: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(gated(x, Variable(random({2, 4}))),
                    Catch::Contains("gated") && Catch::Contains("[2, 4]"));
  CHECK_THROWS_AS(gated(x, x, {.norm = NormOptions{.eps = -1}}), ConfigError);
  CHECK_THROWS_WITH(gated(x, x, {.norm = NormOptions{.weight = Variable(random({2}))}}),
                    Catch::Contains("gated") && Catch::Contains("weight"));
}
