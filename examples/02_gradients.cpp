// Lesson 2: a Variable is a tensor that records how it was computed.
//
// Operations record themselves in a graph; backward() visits it from the newest operation to the
// oldest and stores the gradients in the leaves.
#include <iostream>

#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

int main() {
  Tensor x0 = Tensor::empty({3, 4}, DType::f64), w0 = Tensor::empty({2, 4}, DType::f64);
  fill_normal(x0, Generator(1));
  fill_normal(w0, Generator(2));

  const Variable x(x0);                          // a constant
  const Variable w(w0, /*requires_grad=*/true);  // a leaf that requires a gradient

  // Logistic regression: the loss is a scalar, so backward() needs no seed.
  const Tensor target = Tensor::from<int32_t>({0, 1, 1}, {3});
  const Variable loss = cross_entropy(linear(x, w), target);
  backward(loss);
  std::cout << "loss " << loss.value().item() << ", dloss/dw[0,0] " << w.grad().at({0, 0}) << '\n';

  // A step against the gradient decreases the loss.
  Variable moved(w0.clone(), true);
  for (int64_t i = 0; i < w0.numel(); ++i)
    moved.mutable_value().data<double>()[i] -= 0.1 * w.grad().data<double>()[i];
  const double after = cross_entropy(linear(x, moved), target).value().item();
  std::cout << "loss after a small step " << after << '\n';

  // To check a gradient, compare it with finite differences of a random combination of the outputs:
  // their plain sum would hide errors, because the sum of a softmax is always 1.
  const GradcheckReport report =
      gradcheck([](const Variables& in) { return softmax(tanh(in[0])); }, {x0});
  std::cout << "gradcheck: " << report << '\n';
  return after < loss.value().item() && report.ok ? 0 : 1;
}
