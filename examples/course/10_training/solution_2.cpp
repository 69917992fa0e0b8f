// Exercise 2: Adam by hand; a loss 1,000 times as large gives the same steps; and what bias correction corrects.
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/train/step/optimizers.h"

using namespace longhand;

int main() {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1;
  const Variable x(Tensor::zeros({1}, DType::f64), true),
      large(Tensor::zeros({1}, DType::f64), true), small(Tensor::zeros({1}, DType::f64), true);
  const auto adamw = train::make_adam({{"x", x}}, {.weight_decay = decay});
  const auto of_large = train::make_adam({{"x", large}}),
             of_small = train::make_adam({{"x", small}});
  double m = 0, v = 0, by_hand = 0, first = 0;
  for (int t = 1; t <= 100; ++t) {
    const double g = 0.3 + Generator(10).normal(static_cast<uint64_t>(t));
    const auto gradient = [&](double scale) {
      return train::Gradients{Tensor::full({1}, scale * g, DType::f64)};
    };
    adamw->step(lr, gradient(1));
    of_small->step(lr, gradient(1));
    of_large->step(lr, gradient(1000));
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    by_hand -= lr * (m_hat / (std::sqrt(v_hat) + eps) + decay * by_hand);
    if (t == 1)
      first = std::abs(m / std::sqrt(v));  // of a step without the correction, in units of lr
  }
  const double difference = std::abs(x.value().item() - by_hand),
               scaled = std::abs(large.value().item() - small.value().item());
  std::printf("by hand and the library: %s\n", difference < 1e-12 ? "equal" : "different");
  std::printf("1,000 times the gradient: %s\n", scaled < 1e-6 ? "equal" : "different");
  std::printf("the first step without bias correction is %.2f times as long\n", first);
  return difference < 1e-12 && scaled < 1e-6 && std::abs(first - std::sqrt(10)) < 1e-6 ? 0 : 1;
}
