// Exercise 3: the mean of the means of two micro-batches is wrong if their numbers of targets differ.
#include <cstdio>
#include <vector>

#include "longhand/autograd/ops.h"

using namespace longhand;

int main() {
  Tensor inputs = Tensor::empty({8, 3}, DType::f64);
  fill_normal(inputs, Generator(10));
  // The second half has one target; -100 is ignored.
  const Tensor targets = Tensor::from(std::vector<int32_t>{0, 1, 2, 1, 2, -100, -100, -100}, {8});
  // The gradient of the loss of rows begin … end-1, divided by their targets or by the normalizer.
  const auto gradient = [&](int64_t begin, int64_t end, std::optional<double> normalizer) {
    const Variable W(Tensor::zeros({3, 3}, DType::f64), true);
    const Variable logits = linear(Variable(inputs.slice(0, begin, end)), W);
    backward(cross_entropy(logits, targets.slice(0, begin, end), {.normalizer = normalizer}));
    return Variable(W.grad());
  };
  const Variable whole = gradient(0, 8, {});
  const auto error = [&](const Variable& g) { return sum(square(g - whole)).value().item(); };
  const bool mean_of_means = error((gradient(0, 4, {}) + gradient(4, 8, {})) / 2) < 1e-20;
  const bool sum_of_parts = error(gradient(0, 4, 5.0) + gradient(4, 8, 5.0)) < 1e-20;
  std::printf("mean of the means: %s; sums divided by all 5 targets: %s\n",
              mean_of_means ? "right" : "wrong", sum_of_parts ? "right" : "wrong");
  return !mean_of_means && sum_of_parts ? 0 : 1;
}
