// Exercise 1: on a quadratic with curvature 100, gradient descent is stable up to the rate 2 (1 + momentum) / 100.
#include <cmath>
#include <cstdio>

#include "longhand/autograd/ops.h"
#include "longhand/train/step/optimizers.h"

using namespace longhand;

// Whether 500 steps on f(x) = (x_1² + 100 x_2²) / 2 come closer to its minimum.
bool converges(double lr, double momentum) {
  const Variable x(Tensor::from(std::vector<double>{1, 1}, {2}), /*requires_grad=*/true);
  const Variable curvatures(Tensor::from(std::vector<double>{1, 100}, {2}));
  const auto sgd = train::make_sgd({{"x", x}}, {.momentum = momentum});
  for (int step = 0; step < 500; ++step) {
    backward(sum(curvatures * square(x)) / 2);
    sgd->step(lr);
  }
  return std::abs(x.value().at({1})) < 1;
}

int main() {
  bool right = true;
  for (const double momentum : {0.0, 0.5, 0.9}) {
    double low = 0, high = 1;
    while (high - low > 1e-5) {
      const double middle = (low + high) / 2;
      (converges(middle, momentum) ? low : high) = middle;
    }
    const double expected = 2 * (1 + momentum) / 100;
    std::printf("momentum %.1f: stable up to %.4f, expected %.4f\n", momentum, low, expected);
    right = right && std::abs(low / expected - 1) < 0.02;
  }
  return right ? 0 : 1;
}
