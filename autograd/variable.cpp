#include "longhand/autograd/variable.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "longhand/core/kernels/elementwise.h"

namespace longhand {
namespace {

thread_local bool recording = true;
std::atomic<uint64_t> node_count{0};

std::shared_ptr<detail::Node> make_node(const Tensor& value, std::string_view op) {
  auto node = std::make_shared<detail::Node>();
  node->shape = value.shape();
  node->strides = value.strides();
  node->dtype = value.dtype();
  node->number = node_count++;
  node->op = op;
  return node;
}

}  // namespace

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }
EnableGrad::EnableGrad() : before_(recording) { recording = true; }
EnableGrad::~EnableGrad() { recording = before_; }

// Dropping the last handle of a long chain must not recurse once per node: the inputs of dying
// nodes go to a list that the outermost destructor empties.
detail::Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>>* dying = nullptr;
  if (dying) {
    for (auto& input : inputs) dying->push_back(std::move(input));
    return;
  }
  std::vector<std::shared_ptr<Node>> list = std::move(inputs);
  dying = &list;
  // A rule's captures may hold the last handle of other nodes: let them die while the list stands.
  backward = nullptr;
  while (!list.empty()) {
    const std::shared_ptr<Node> node = std::move(list.back());
    list.pop_back();
  }
  dying = nullptr;
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

GradSlot::Accumulator GradSlot::accumulate() {
  served_ = true;
  Tensor& grad = node_->grad;
  if (!grad.defined()) {
    grad = Tensor::empty_ordered(node_->shape, node_->dtype, node_->strides);
    return {grad, 0.0};
  }
  // What take() left may be shared with others, or a view that repeats elements.
  if (!grad.unique() || !grad.is_dense()) grad = grad.is_dense() ? grad.clone() : grad.contiguous();
  return {grad, 1.0};
}

void GradSlot::take(Tensor grad) {
  served_ = true;
  check<ShapeError>(grad.shape() == node_->shape && grad.dtype() == node_->dtype,
                    "backward: a gradient of ", grad.shape(), " of ", grad.dtype(),
                    " for a value of ", node_->shape, " of ", node_->dtype);
  if (!node_->grad.defined()) {
    node_->grad = std::move(grad);
    return;
  }
  const Accumulator sum = accumulate();
  dispatch_float(grad.dtype(), [&]<class T>() {
    kernels::elementwise_accumulate<T>(sum.grad, 1.0, [](T g) { return g; }, kernels::in<T>(grad));
  });
}

Variable record(std::string_view op, Tensor out, std::span<const Variable> inputs,
                Backward backward) {
  Variable result(std::move(out));
  bool needed = false;
  for (const Variable& input : inputs) needed = needed || input.requires_grad();
  if (!needed || !recording) return result;
  result.node_ = make_node(result.value_, op);
  result.node_->backward = std::move(backward);
  for (const Variable& input : inputs) result.node_->inputs.push_back(input.node_);
  return result;
}

void backward(const Variable& root, const Tensor& seed) {
  check(root.requires_grad(), "backward: the root needs no gradient");
  if (seed.defined())
    check<ShapeError>(seed.shape() == root.shape() && seed.dtype() == root.dtype(),
                      "backward: seed ", seed.shape(), " of ", seed.dtype(), " for a root ",
                      root.shape(), " of ", root.dtype());
  else
    check<ShapeError>(root.value().numel() == 1, "backward: a root of shape ", root.shape(),
                      " needs a seed");

  // All nodes behind the root, without recursion; children were created after their inputs.
  std::vector<detail::Node*> nodes{root.node_.get()}, stack{root.node_.get()};
  std::unordered_set<detail::Node*> seen{root.node_.get()};
  while (!stack.empty()) {
    detail::Node* node = stack.back();
    stack.pop_back();
    check(node->leaf || !node->done, "backward: the graph behind ", node->op,
          " was freed by an earlier backward()");
    for (const auto& input : node->inputs)
      if (input && seen.insert(input.get()).second) {
        nodes.push_back(input.get());
        stack.push_back(input.get());
      }
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const auto* a, const auto* b) { return a->number > b->number; });

  GradSlot(root.node_.get())
      .take(seed.defined() ? seed : Tensor::full(root.shape(), 1.0, root.dtype()));
  // A node must outlive its turn, though its children, which hold it, are cleared before it.
  std::vector<std::shared_ptr<detail::Node>> keep{root.node_};
  for (detail::Node* node : nodes) {
    if (node->leaf) continue;
    const Tensor grad = std::exchange(node->grad, Tensor());
    std::vector<GradSlot> slots;
    for (const auto& input : node->inputs) slots.emplace_back(input.get());
    node->backward(grad, slots);
    for (size_t i = 0; i < slots.size(); ++i)
      check(!slots[i] || slots[i].served(), "backward: ", node->op, " gave no gradient for input ",
            i);
    node->backward = nullptr;
    node->done = true;
    for (auto& input : node->inputs)
      if (input) keep.push_back(std::move(input));
    node->inputs.clear();
  }
}

}  // namespace longhand
