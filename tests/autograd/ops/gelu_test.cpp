#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("gelu: as many digits in the negative tail as elsewhere") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const bool narrow = dtype == DType::f32;
    std::vector<double> in = {-5.5, -9, -3.95, -4, -1, -1e-4, 1e-4, 1, 5.5, 9, 20};
    const double lowest = narrow ? -13 : -37.5;
    for (int i = 0; i <= 3000; ++i) in.push_back(lowest + (10 - lowest) * i / 3000);
    const Tensor x = Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype);
    const auto at = x.to_vector<double>();
    // By itself, and on its way into a linear layer.
    const Variable one(Tensor::full({1, 1}, 1, dtype));
    const Op direct = [](const Variables& v) { return gelu(v[0]); };
    const Op fused = [&](const Variables& v) {
      return linear(reshape(v[0], {v[0].size(0), 1}), one, {}, {.gelu = true});
    };
    for (const Op& op : {direct, fused}) {
      const Variable leaf(x, true);
      const Variable out = op({leaf});
      backward(out, Tensor::full(out.shape(), 1, dtype));
      const auto y = out.value().to_vector<double>(), dy = leaf.grad().to_vector<double>();
      double worst = 0, worst_slope = 0;
      for (size_t i = 0; i < at.size(); ++i) {
        const long double v = at[i], cdf = std::erfc(-v / std::sqrt(2.0L)) / 2;
        const long double density = std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0L));
        const auto error = [](double found, long double expected, long double unit) {
          return static_cast<double>(std::abs(found - expected) / unit);
        };
        if (v != 0) worst = std::max(worst, error(y[i], v * cdf, std::abs(v * cdf)));
        // The slope is 0 near -0.75: relative to its terms.
        worst_slope =
            std::max(worst_slope, error(dy[i], cdf + v * density, cdf + std::abs(v) * density));
      }
      INFO(dtype << " " << worst << " " << worst_slope);
      CHECK(worst <= (narrow ? 1e-6 : 1e-12));
      CHECK(worst_slope <= (narrow ? 1e-6 : 1e-12));
    }
  }
}
