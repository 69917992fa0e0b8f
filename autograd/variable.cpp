#include "longhand/autograd/variable.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/view.h"

namespace longhand {
namespace {

thread_local bool recording = true;
std::atomic<uint64_t> node_count{0};

// While a gradient rule runs on this thread: the nodes that were there before it.
thread_local uint64_t foreign_nodes = 0;

std::shared_ptr<detail::Node> make_node(const Tensor& value, std::string_view op) {
  auto node = std::make_shared<detail::Node>();
  node->shape = value.shape();
  node->strides = dense_strides(value.shape(), value.strides());
  node->dtype = value.dtype();
  node->number = node_count++;
  node->op = op;
  return node;
}

void check_fits(const Tensor& grad, const detail::Node& node) {
  check<ShapeError>(grad.defined(), "backward: an undefined gradient for a value of ", node.shape);
  check<ShapeError>(grad.shape() == node.shape && grad.dtype() == node.dtype,
                    "backward: a gradient of ", grad.shape(), " of ", grad.dtype(),
                    " for a value of ", node.shape, " of ", node.dtype);
}

// Nobody else sees the gradient, and it lies in memory as the node's value does.
bool is_own(const Tensor& grad, const detail::Node& node) {
  return grad.unique() && has_strides(grad, node.strides);
}

Tensor own_copy(const Tensor& grad, const detail::Node& node) {
  Tensor own = Tensor::empty_ordered(node.shape, node.dtype, node.strides);
  copy_into(own, grad);
  return own;
}

}  // namespace

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }
EnableGrad::EnableGrad() : before_(recording) { recording = true; }
EnableGrad::~EnableGrad() { recording = before_; }

// Dropping the last handle of a long chain must not recurse once per node: what dying nodes hold,
// be it inputs or captures of their rules, goes to lists that the outermost destructor empties.
detail::Node::~Node() {
  struct Dying {
    std::vector<std::shared_ptr<Node>> nodes;
    std::vector<Backward> rules;
  };
  thread_local Dying* outermost = nullptr;
  const auto give = [this](Dying& to) {
    for (auto& input : inputs)
      if (input) to.nodes.push_back(std::move(input));
    if (backward) to.rules.push_back(std::move(backward));
  };
  if (outermost) {
    give(*outermost);
    return;
  }
  Dying dying;
  give(dying);
  outermost = &dying;
  while (!dying.nodes.empty() || !dying.rules.empty()) {
    // Taken off the list first: their destructors add to it.
    if (!dying.nodes.empty()) {
      const std::shared_ptr<Node> node = std::move(dying.nodes.back());
      dying.nodes.pop_back();
    } else {
      const Backward rule = std::move(dying.rules.back());
      dying.rules.pop_back();
    }
  }
  outermost = nullptr;
}

Variable::Variable(Tensor value, bool requires_grad) : value_(std::move(value)) {
  if (!requires_grad) return;
  check<ShapeError>(value_.defined() && is_float(value_.dtype()),
                    "variable: only floats have gradients, not ", value_.dtype());
  node_ = make_node(value_, "leaf");
  node_->leaf = true;
}

const Tensor& Variable::grad() const {
  static const Tensor none;
  return node_ && node_->leaf ? node_->grad : none;
}

Tensor Variable::take_grad() {
  if (!node_ || !node_->leaf) return {};
  return std::exchange(node_->grad, Tensor());
}

void GradSlot::serve() {
  check(node_ != nullptr, "backward: a gradient was given for an input that needs none");
  check(!served_, "backward: a gradient was given twice for the same input");
  served_ = true;
}

GradSlot::Accumulator GradSlot::accumulate() {
  serve();
  if (!grad_->defined()) {
    *grad_ = Tensor::empty_ordered(node_->shape, node_->dtype, node_->strides);
    return {*grad_, 0.0};
  }
  // What take() left may be shared with others, and lie in any order or repeat elements.
  if (!is_own(*grad_, *node_)) *grad_ = own_copy(*grad_, *node_);
  return {*grad_, 1.0};
}

void GradSlot::take(Tensor grad) {
  if (!grad_ || !grad_->defined()) {
    serve();
    check_fits(grad, *node_);
    *grad_ = std::move(grad);
    return;
  }
  check_fits(grad, *node_);
  const Accumulator sum = accumulate();
  dispatch_float(grad.dtype(), [&]<class T>() {
    kernels::elementwise_accumulate<T>(
        sum.grad, 1.0, [](T g) { return g; }, kernels::in<T>(grad));
  });
}

Variable record(std::string_view op, Tensor out, std::span<const Variable> inputs,
                Backward backward) {
  Variable result(std::move(out));
  bool needed = false;
  for (const Variable& input : inputs) needed = needed || input.requires_grad();
  if (!needed || !recording) return result;
  check<ShapeError>(is_float(result.dtype()), op, ": a result of ", result.dtype(),
                    " has no gradient");
  result.node_ = make_node(result.value_, op);
  result.node_->backward = std::move(backward);
  for (const Variable& input : inputs) result.node_->inputs.push_back(input.node_);
  return result;
}

namespace {

using Nodes = std::vector<std::shared_ptr<detail::Node>>;

// All nodes behind the root, each before its inputs, which were created earlier. No recursion.
Nodes nodes_behind(const std::shared_ptr<detail::Node>& root) {
  Nodes nodes{root};
  std::unordered_set<const detail::Node*> seen{root.get()};
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::shared_ptr<detail::Node> node = nodes[i];
    check(!node->done, "backward: the graph behind ", node->op,
          " was freed by an earlier backward()");
    check(node->leaf || node->number >= foreign_nodes, "backward: inside a gradient rule, reached ",
          node->op, ", which was computed outside: it must be an input");
    for (const auto& input : node->inputs)
      if (input && seen.insert(input.get()).second) nodes.push_back(input);
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a->number > b->number; });
  return nodes;
}

// Hands the gradient of a node on to its inputs, and frees it with all that the rule held.
void run_rule(detail::Node& node) {
  const Tensor grad_out = std::exchange(node.grad, {});
  const Backward rule = std::exchange(node.backward, nullptr);
  const Nodes inputs = std::exchange(node.inputs, {});
  node.done = true;

  // Where a node is an input again, its slot gets memory of its own: two slots on one gradient
  // would see each other's unfinished work.
  std::vector<GradSlot> slots(inputs.size());
  std::vector<Tensor> again(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    const auto here = inputs.begin() + static_cast<ptrdiff_t>(i);
    const bool first = std::find(inputs.begin(), here, inputs[i]) == here;
    slots[i] = GradSlot(*inputs[i], first ? inputs[i]->grad : again[i]);
  }
  {
    struct InsideRule {
      uint64_t before = std::exchange(foreign_nodes, node_count);
      ~InsideRule() { foreign_nodes = before; }
    };
    const InsideRule inside;
    const NoGrad no_grad;
    rule(grad_out, slots);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(!slots[i] || slots[i].served(), "backward: ", node.op, " gave no gradient for input ", i);
    if (again[i].defined()) GradSlot(*inputs[i], inputs[i]->grad).take(std::move(again[i]));
  }
}

// Leaves no gradient between the leaves and the root, and none in a leaf that others could see
// change: the gradients of a + b, say, are one tensor at first.
void settle(const Nodes& nodes) {
  for (const auto& node : nodes) {
    if (!node->leaf)
      node->grad = Tensor();
    else if (node->grad.defined() && !is_own(node->grad, *node))
      node->grad = own_copy(node->grad, *node);
  }
}

}  // namespace

void backward(const Variable& root, const Tensor& seed) {
  check(root.requires_grad(), "backward: the root needs no gradient");
  if (seed.defined())
    check<ShapeError>(seed.shape() == root.shape() && seed.dtype() == root.dtype(),
                      "backward: seed ", seed.shape(), " of ", seed.dtype(), " for a root ",
                      root.shape(), " of ", root.dtype());
  else
    check<ShapeError>(root.value().numel() == 1, "backward: a root of shape ", root.shape(),
                      " needs a seed");

  const Nodes nodes = nodes_behind(root.node_);
  try {
    GradSlot(*root.node_, root.node_->grad)
        .take(seed.defined() ? seed : Tensor::full(root.shape(), 1.0, root.dtype()));
    for (const auto& node : nodes)
      if (!node->leaf) run_rule(*node);
  } catch (...) {
    settle(nodes);
    throw;
  }
  settle(nodes);
}

}  // namespace longhand
