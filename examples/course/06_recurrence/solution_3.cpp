// Exercise 3: the gradients of all gates, from q·dq - k·dk.
#include <cmath>
#include <cstdio>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/core/random.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;

int main() {
  const int64_t N = 40, D = 8;
  Tensor x[4];
  for (uint64_t a = 0; a < 4; ++a)
    fill_normal(x[a] = Tensor::empty({1, N, 1, D}, DType::f64), Generator(6).fork(a));
  Tensor decay = Tensor::empty({1, N, 1}, DType::f64);
  fill_uniform(decay, Generator(7), -0.3, 0);
  const Variable q(x[0], true), k(x[1], true), v(x[2], true), g(decay, true);
  backward(definitions::apply(definitions::retention(q, k, g), v), x[3]);

  double dg = 0, worst = 0;  // dg_t = Σ_(i >= t) (q_i·dq_i - k_i·dk_i)
  for (int64_t i = N - 1; i >= 0; --i) {
    for (int64_t d = 0; d < D; ++d)
      dg += q.value().at({0, i, 0, d}) * q.grad().at({0, i, 0, d}) -
            k.value().at({0, i, 0, d}) * k.grad().at({0, i, 0, d});
    worst = std::max(worst, std::abs(dg - g.grad().at({0, i, 0})));
  }
  std::printf("the gradients of the gates %s\n", worst < 1e-10 ? "agree" : "differ");
  return worst < 1e-10 ? 0 : 1;
}
