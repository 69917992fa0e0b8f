#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("cos_sin agrees with the mathematical functions") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double tolerance = dtype == DType::f32 ? 1.2e-7 : 3e-16;
    for (const double range : {1.0, 30.0, 1e3, 1e6}) {
      const Tensor x = random({5000}, dtype, -range, range);
      const auto in = x.to_vector<double>(), y = cos_sin(Variable(x)).value().to_vector<double>();
      double worst = 0;
      for (size_t i = 0; i < in.size(); ++i) {
        worst = std::max(worst, std::abs(y[i] - std::cos(in[i])));
        worst = std::max(worst, std::abs(y[in.size() + i] - std::sin(in[i])));
      }
      INFO(dtype << " up to " << range << ": " << worst);
      CHECK(worst <= tolerance);
    }
    // Multiples of pi/2 and pi/4, near which the quadrant changes; huge arguments and NaN.
    for (int n = -9; n <= 9; ++n) {
      const double half_pi = std::acos(0.0);
      for (const double shift : {-1e-3, 0.0, 1e-3, half_pi / 2}) {
        const Tensor x = Tensor::full({1}, n * half_pi + shift, dtype);
        const Tensor y = cos_sin(Variable(x)).value();
        CHECK(std::abs(y.at({0}) - std::cos(x.item())) <= tolerance);
        CHECK(std::abs(y.at({1}) - std::sin(x.item())) <= tolerance);
      }
    }
    for (const double large : {1e9, -1e15, 1e30}) {
      const Tensor y = cos_sin(Variable(Tensor::full({1}, large, dtype))).value();
      CHECK(std::abs(y.at({0})) <= 1);
      CHECK(std::abs(y.at({1})) <= 1);
    }
    CHECK(std::isnan(cos_sin(Variable(Tensor::full({1}, NAN, dtype))).value().at({0})));
  }
}
