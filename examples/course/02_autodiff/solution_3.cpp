// Exercise 3: a chain of a million operations. The destructor of shared_ptr calls itself once for each of them
// and overflows the stack; here a node that dies hands its inputs to a list instead.
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <vector>

struct Node {
  double value, grad = 0;
  int number;
  std::vector<std::pair<std::shared_ptr<Node>, double>> inputs;

  Node(double of, int n, std::vector<std::pair<std::shared_ptr<Node>, double>> in)
      : value(of), number(n), inputs(std::move(in)) {}
  ~Node() {
    static std::vector<std::shared_ptr<Node>> dying;
    static bool busy = false;
    for (auto& [input, slope] : inputs) dying.push_back(std::move(input));
    if (busy) return;  // a destructor further out empties the list
    busy = true;
    while (!dying.empty()) {
      const std::shared_ptr<Node> node = std::move(dying.back());
      dying.pop_back();
    }
    busy = false;
  }
};
using Value = std::shared_ptr<Node>;

Value make(double value, std::vector<std::pair<Value, double>> inputs = {}) {
  static int count = 0;
  return std::make_shared<Node>(value, count++, std::move(inputs));
}
Value operator+(const Value& a, const Value& b) {
  return make(a->value + b->value, {{a, 1}, {b, 1}});
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
  const Value x = make(1);
  Value y = x;
  for (int i = 0; i < 1000000; ++i) y = y + x;
  backward(y);
  const double grad = x->grad;
  y.reset();
  std::cout << "dy/dx = " << grad << ", and the graph of a million nodes is freed\n";
  return grad == 1000001 ? 0 : 1;
}
