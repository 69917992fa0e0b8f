// Exercise 1: log and tanh for the engine, checked by central differences.
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <vector>

struct Node {
  double value, grad = 0;
  int number;
  std::vector<std::pair<std::shared_ptr<Node>, double>> inputs;
};
using Value = std::shared_ptr<Node>;

Value make(double value, std::vector<std::pair<Value, double>> inputs = {}) {
  static int count = 0;
  return std::make_shared<Node>(Node{value, 0, count++, std::move(inputs)});
}
Value operator*(const Value& a, const Value& b) {
  return make(a->value * b->value, {{a, b->value}, {b, a->value}});
}
Value log(const Value& a) { return make(std::log(a->value), {{a, 1 / a->value}}); }
Value tanh(const Value& a) {
  const double y = std::tanh(a->value);
  return make(y, {{a, 1 - y * y}});  // the slope comes from the result: x is not needed
}

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

int main() {
  const auto f = [](double at) {
    const Value x = make(at), y = tanh(x) * log(x) * x;
    backward(y);
    return std::pair(y->value, x->grad);
  };
  const double h = 1e-5, x = 1.7;
  const double numeric = (f(x + h).first - f(x - h).first) / (2 * h), exact = f(x).second;
  const bool right = std::abs(numeric - exact) < 1e-8;
  std::cout << "d/dx x tanh(x) log(x) at 1.7 is " << exact
            << (right ? ", as by differences\n" : ", but not by differences\n");
  return right ? 0 : 1;
}
