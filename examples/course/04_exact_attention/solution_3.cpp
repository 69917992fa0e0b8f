// Exercise 3: the gradients of all keys add up to 0, because a vector added to every key changes no weight.
#include <cmath>
#include <cstdio>

#include "longhand/attention/ops/softmax_attention.h"

using namespace longhand;

int main() {
  constexpr int64_t N = 50, D = 8;
  Tensor x[4];
  for (uint64_t a = 0; a < 4; ++a)
    fill_normal(x[a] = Tensor::empty({1, N, 1, D}, DType::f64), Generator(4).fork(a));
  const Variable q(x[0], true), k(x[1], true), v(x[2], true);
  backward(attention::softmax_attention(q, k, v, {}), x[3]);
  double largest = 0, largest_sum = 0;
  for (int64_t d = 0; d < D; ++d) {
    double sum = 0;
    for (int64_t j = 0; j < N; ++j) {
      sum += k.grad().at({0, j, 0, d});
      largest = std::max(largest, std::abs(k.grad().at({0, j, 0, d})));
    }
    largest_sum = std::max(largest_sum, std::abs(sum));
  }
  const bool zero = largest > 0.1 && largest_sum < 1e-13;
  std::printf("%s\n", zero ? "the gradients of the keys add up to 0" : "they do not");
  return zero ? 0 : 1;
}
