// Values of the operations on single elements, against functions of the C++ library, and values and
// slopes at extreme arguments.
#include <cmath>
#include <optional>

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

using Function = Variable (*)(const Variable&);

struct Extreme {
  double x, y;
  std::optional<double> slope = {};
};

struct Pointwise {
  const char* name;
  Function f;
  double (*expected)(double);
  std::vector<double> at;
  std::vector<Extreme> extremes;
};

const std::vector<double> usual{-30, -3, -1, -0.5, -1e-5, 0, 1e-3, 0.7, 4};
const std::vector<double> positive{1e-30, 0.3, 1, 2.5, 1e20};

const std::vector<Pointwise> functions{
    {"exp",
     exp,
     std::exp,
     usual,
     {{-INFINITY, 0, 0}, {INFINITY, INFINITY}, {-1000, 0}, {1000, INFINITY}}},
    {"log",
     [](const Variable& x) { return log(x); },
     std::log,
     positive,
     {{0, -INFINITY, INFINITY}, {-1, NAN}, {INFINITY, INFINITY, 0}}},
    {"sqrt", sqrt, std::sqrt, positive, {{0, 0, INFINITY}, {4, 2, 0.25}, {-1, NAN}}},
    {"square", square, [](double x) { return x * x; }, usual, {{-INFINITY, INFINITY, -INFINITY}}},
    {"tanh",
     tanh,
     std::tanh,
     usual,
     {{-100, -1, 0}, {100, 1, 0}, {-INFINITY, -1, 0}, {INFINITY, 1, 0}}},
    {"sigmoid",
     sigmoid,
     [](double x) { return 1 / (1 + std::exp(-x)); },
     usual,
     {{-2000, 0, 0}, {2000, 1, 0}, {-INFINITY, 0, 0}, {INFINITY, 1, 0}}},
    {"relu",
     relu,
     [](double x) { return std::max(x, 0.0); },
     usual,
     {{0, 0, 0},
      {1e-30, 1e-30, 1},
      {-1e-30, 0, 0},
      {NAN, NAN, 1},
      {INFINITY, INFINITY, 1},
      {-INFINITY, 0, 0}}},
    {"elu",
     [](const Variable& x) { return elu(x); },
     [](double x) { return x > 0 ? x : std::expm1(x); },
     usual,
     {{-INFINITY, -1, 0}, {INFINITY, INFINITY, 1}, {0, 0, 1}, {-800, -1, 0}, {800, 800, 1}}},
    {"elu, alpha 2",
     [](const Variable& x) { return elu(x, 2); },
     [](double x) { return x > 0 ? x : 2 * std::expm1(x); },
     usual,
     {{-INFINITY, -2, 0}}},
    {"elu, alpha 0",
     [](const Variable& x) { return elu(x, 0); },
     [](double x) { return std::max(x, 0.0); },
     usual,
     {}},
    {"elu_plus_one",
     elu_plus_one,
     [](double x) { return x > 0 ? x + 1 : std::exp(x); },
     usual,
     {{-INFINITY, 0, 0}, {INFINITY, INFINITY, 1}, {0, 1, 1}, {-30, std::exp(-30), std::exp(-30)}}},
    {"gelu",
     gelu,
     [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; },
     {-1, -0.5, 0, 1e-3, 0.7, 4},
     {{-50, 0, 0}, {0, 0, 0.5}, {50, 50, 1}}},
    {"silu",
     silu,
     [](double x) { return x / (1 + std::exp(-x)); },
     usual,
     {{-1e4, 0, 0}, {1e4, 1e4, 1}, {0, 0, 0.5}}},
    {"softplus",
     [](const Variable& x) { return softplus(x); },
     [](double x) { return std::log1p(std::exp(x)); },
     usual,
     {{1e4, 1e4, 1}, {-1e4, 0, 0}, {-INFINITY, 0, 0}, {INFINITY, INFINITY, 1}}}};

// Equal, both NaN, or finite and within a relative tolerance.
bool agrees(double a, double b, double tolerance) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * std::abs(b);
}

}  // namespace

TEST_CASE("pointwise operations: values, and extreme arguments") {
  for (const Pointwise& p : functions)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
      const auto call = [&](double x) {
        const Variable v(Tensor::scalar(x, dtype), true), y = p.f(v);
        backward(y);
        return std::tuple(v.value().item(), y.value().item(), v.grad().item());
      };
      for (const double given : p.at) {
        const auto [x, y, slope] = call(given);
        INFO(p.name << " of " << dtype << " x " << x << " y " << y);
        CHECK(agrees(y, p.expected(x), tolerance));
      }
      for (const Extreme& e : p.extremes) {
        const auto [x, y, slope] = call(e.x);
        INFO(p.name << " of " << dtype << " x " << x << " y " << y << " slope " << slope);
        CHECK(agrees(y, e.y, tolerance));
        CHECK(agrees(slope, e.slope.value_or(slope), tolerance));
      }
    }
}

TEST_CASE("elu: alpha is at least 0") {
  CHECK_THROWS_AS(elu(Variable(random({2})), -1), ConfigError);
  CHECK_THROWS_AS(elu(Variable(random({2})), NAN), ConfigError);
}

TEST_CASE("softplus: values are accurate relative to themselves, down to e^-80") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    double worst = 0;
    for (double at = -80; at <= 80; at += 0.37) {
      const Tensor given = Tensor::scalar(at, dtype);
      const double x = given.item();
      const double exact = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
      const double error = std::abs(softplus(Variable(given)).value().item() / exact - 1);
      if (!(error <= worst)) worst = error;
    }
    INFO(dtype << ": " << worst);
    CHECK(worst < (dtype == DType::f32 ? 4e-7 : 1e-15));
  }
}
