// Chapter 2: reverse-mode automatic differentiation of scalars, and the library's, of tensors.
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <vector>

#include "longhand/autograd/ops.h"

// A number, how it was computed, and the derivative of the final result with respect to it.
struct Node {
  double value, grad = 0;
  int number;                                                    // in order of creation
  std::vector<std::pair<std::shared_ptr<Node>, double>> inputs;  // each with its d value / d input
};
using Value = std::shared_ptr<Node>;

Value make(double value, std::vector<std::pair<Value, double>> inputs = {}) {
  static int count = 0;
  return std::make_shared<Node>(Node{value, 0, count++, std::move(inputs)});
}
Value operator+(const Value& a, const Value& b) {
  return make(a->value + b->value, {{a, 1}, {b, 1}});
}
Value operator*(const Value& a, const Value& b) {
  return make(a->value * b->value, {{a, b->value}, {b, a->value}});
}
Value operator/(const Value& a, const Value& b) {
  const double y = a->value / b->value;
  return make(y, {{a, 1 / b->value}, {b, -y / b->value}});
}
Value exp(const Value& a) {
  const double y = std::exp(a->value);
  return make(y, {{a, y}});
}

// From the newest node to the oldest: when a node's turn comes, all that use it have had theirs.
void backward(const Value& root) {
  root->grad = 1;
  std::map<int, Node*, std::greater<>> waiting{{root->number, root.get()}};
  while (!waiting.empty()) {
    Node* const node = waiting.begin()->second;
    waiting.erase(waiting.begin());
    for (const auto& [input, slope] : node->inputs) {
      input->grad += node->grad * slope;
      waiting[input->number] = input.get();
    }
  }
}

// Attention of one query to two keys: o = (e^(q k1) v1 + e^(q k2) v2) / (e^(q k1) + e^(q k2)).
void attention() {
  const Value q = make(0.5), k1 = make(1), k2 = make(-2), v1 = make(3), v2 = make(-1);
  const Value w1 = exp(q * k1), w2 = exp(q * k2);
  const Value o = (w1 * v1 + w2 * v2) / (w1 + w2);
  backward(o);

  using namespace longhand;
  const Variable Q(Tensor::from<double>({0.5}, {1, 1}), true),
      K(Tensor::from<double>({1, -2}, {2, 1}), true),
      V(Tensor::from<double>({3, -1}, {2, 1}), true);
  const Variable O = matmul(softmax(matmul(Q, transpose(K, 0, 1))), V);
  backward(O);

  std::cout << std::fixed << std::setprecision(4) << "         engine  library\n"
            << "o        " << o->value << "  " << O.value().item() << '\n'
            << "do/dq    " << q->grad << "  " << Q.grad().item() << '\n'
            << "do/dk1   " << k1->grad << "  " << K.grad().at({0, 0}) << '\n'
            << "do/dk2   " << k2->grad << "  " << K.grad().at({1, 0}) << '\n'
            << "do/dv1   " << v1->grad << "  " << V.grad().at({0, 0}) << '\n'
            << "do/dv2   " << v2->grad << "  " << V.grad().at({1, 0}) << "\n\n";
}

// Finite differences of f(x) = x³ / (1 + x²) at 1.5, next to the exact derivative.
void differences() {
  const auto f = [](const auto& x, const auto& one) { return x * x * x / (one + x * x); };
  const Value x = make(1.5);
  backward(f(x, make(1)));

  std::cout << "step h   one-sided  central\n" << std::scientific << std::setprecision(0);
  for (double h = 1e-1; h > 5e-13; h /= 10) {
    const double one_sided = (f(1.5 + h, 1.0) - f(1.5, 1.0)) / h;
    const double central = (f(1.5 + h, 1.0) - f(1.5 - h, 1.0)) / (2 * h);
    std::cout << h << "    " << std::abs(one_sided - x->grad) << "      "
              << std::abs(central - x->grad) << '\n';
  }
}

int main() {
  attention();
  differences();
}
