#include "longhand/autograd/variable.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "longhand/autograd/fixed_weights.h"
#include "longhand/autograd/observer.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/view.h"

namespace longhand {
namespace {

thread_local bool recording = true;
thread_local FixedWeights* fixed_weights = nullptr;
std::atomic<uint64_t> node_count{0};

// While a backward function runs on this thread: the number of nodes that existed before it.
thread_local uint64_t foreign_nodes = 0;

// The innermost observer of this thread; null if there is none.
thread_local OperationObserver* observer = nullptr;

// Calls f for an observer and those around it, the outermost first.
template <class F>
void from_first(OperationObserver& innermost, const F& f) {
  if (innermost.outer()) from_first(*innermost.outer(), f);
  f(innermost);
}

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
  check<ShapeError>(grad.defined(), "backward: the gradient for a value ", node.shape,
                    " is undefined");
  check<ShapeError>(grad.shape() == node.shape && grad.dtype() == node.dtype,
                    "backward: expected a gradient ", node.shape, " of ", node.dtype, ", got ",
                    grad.shape(), " of ", grad.dtype());
}

// Copies a gradient that has another owner, or other strides than the node's value.
void make_own(Tensor& grad, const detail::Node& node) {
  if (grad.unique() && has_strides(grad, node.strides)) return;
  Tensor own = Tensor::empty_ordered(node.shape, node.dtype, node.strides);
  copy_into(own, grad);
  grad = std::move(own);
}

}  // namespace

FixedWeights::Use::Use(FixedWeights& weights) : before_(std::exchange(fixed_weights, &weights)) {}
FixedWeights::Use::~Use() { fixed_weights = before_; }
FixedWeights* FixedWeights::in_use() { return fixed_weights; }

bool grad_enabled() { return recording; }
detail::Recording::Recording(bool enabled) : before_(std::exchange(recording, enabled)) {}
detail::Recording::~Recording() { recording = before_; }

OperationObserver::OperationObserver() : outer_(std::exchange(observer, this)) {}
OperationObserver::~OperationObserver() { observer = outer_; }

// Dropping the last handle to a long chain must not recurse once per node: nodes being destroyed
// move their inputs and backward functions to lists that the outermost destructor empties.
detail::Node::~Node() {
  struct Dying {
    std::vector<std::shared_ptr<Node>> nodes;
    std::vector<Backward> rules;
  };
  thread_local Dying* outermost = nullptr;
  const auto give = [this](Dying& to) {
    try {
      for (auto& input : inputs)
        if (input) to.nodes.push_back(std::move(input));
      if (backward) to.rules.push_back(std::move(backward));
    } catch (const std::bad_alloc&) {
      // What could not be moved is destroyed with this node, recursively.
    }
  };
  if (outermost) {
    give(*outermost);
    return;
  }
  Dying dying;
  give(dying);
  outermost = &dying;
  while (!dying.nodes.empty() || !dying.rules.empty()) {
    // Removed from the list first, since their destructors append to it.
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
                    "variable: expected a float dtype for a gradient, got ", value_.dtype());
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
  check(node_ != nullptr, "backward: a rule gave a gradient for an input that needs none");
  check(!served_, "backward: a rule gave the gradient of an input twice");
  served_ = true;
}

GradSlot::Accumulator GradSlot::accumulate() {
  serve();
  if (!grad_->defined()) {
    *grad_ = Tensor::empty_ordered(node_->shape, node_->dtype, node_->strides);
    return {*grad_, 0.0};
  }
  // A tensor from take() may have other owners, any order of axes, or stride 0.
  make_own(*grad_, *node_);
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
  accumulate_into(accumulate().grad, 1, grad);
}

bool is_recorded(std::span<const Variable> inputs) {
  return recording && std::ranges::any_of(inputs, &Variable::requires_grad);
}

Variable detail::make_result(std::string_view op, Tensor out, std::span<const Variable> inputs,
                             Backward backward) {
  Variable result(std::move(out));
  if (!is_recorded(inputs)) return result;
  check<ShapeError>(is_float(result.dtype()), op, ": expected a result of a float dtype, got ",
                    result.dtype());
  result.node_ = make_node(result.value_, op);
  result.node_->backward = std::move(backward);
  for (const Variable& input : inputs) result.node_->inputs.push_back(input.node_);
  return result;
}

void detail::notify_observer(std::string_view op, std::span<const Variable> inputs,
                             const Variable& recorded, Variable& result) {
  if (!observer || is_dry()) [[likely]]
    return;
  Operation operation{.name = op, .inputs = inputs, .in_backward = foreign_nodes > 0};
  if (recorded.node_) operation.number = recorded.node_->number;
  from_first(*observer, [&](OperationObserver& o) { o.on_result(operation, result.value_); });
}

Variable detail::record(std::string_view op, Tensor out, std::span<const Variable> inputs,
                        Backward backward) {
  Variable result = make_result(op, std::move(out), inputs, std::move(backward));
  notify_observer(op, inputs, result, result);
  return result;
}

// The operation is a node without a value. The results are nodes of their own, created after it and
// therefore reached before it, which store their gradients for its backward function.
Variables detail::record_all(std::string_view op, const ShortVector<Tensor>& outs,
                             std::span<const Variable> inputs, BackwardOfAll backward) {
  Variables results;
  if (!backward) {
    for (const Tensor& out : outs) results.push_back(record(op, out, inputs, {}));
    return results;
  }
  if (outs.size() == 1)
    return {record(op, outs[0], inputs,
                   [backward = std::move(backward)](const Tensor& grad, std::span<GradSlot> slots) {
                     backward({&grad, 1}, slots);
                   })};
  const auto grads = std::make_shared<std::vector<Tensor>>(outs.size());
  std::vector<std::pair<Shape, DType>> kinds;
  for (const Tensor& out : outs) kinds.emplace_back(out.shape(), out.dtype());
  const Variable operation = make_result(
      op, Tensor::empty({0}, outs[0].dtype()), inputs,
      [backward = std::move(backward), grads, kinds](const Tensor&, std::span<GradSlot> slots) {
        std::vector<Tensor> all = std::exchange(*grads, {});
        for (size_t i = 0; i < all.size(); ++i)
          if (!all[i].defined()) all[i] = Tensor::zeros(kinds[i].first, kinds[i].second);
        backward(all, slots);
      });
  for (size_t i = 0; i < outs.size(); ++i) {
    results.push_back(make_result(op, outs[i], {&operation, 1},
                                  [grads, i](const Tensor& grad, std::span<GradSlot> slots) {
                                    (*grads)[i] = grad;
                                    slots[0].accumulate();  // no elements
                                  }));
    if (results[i].node_) results[i].node_->computes = false;
    notify_observer(op, inputs, operation, results[i]);
  }
  return results;
}

namespace {

using Nodes = std::vector<std::shared_ptr<detail::Node>>;

// All nodes that the root depends on, each before its inputs, which were created earlier. Not
// recursive.
Nodes nodes_behind(const std::shared_ptr<detail::Node>& root) {
  Nodes nodes{root};
  std::unordered_set<const detail::Node*> seen{root.get()};
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::shared_ptr<detail::Node> node = nodes[i];
    check(!node->done, "backward: the graph of ", node->op, " was freed by an earlier backward()");
    check(node->leaf || node->number >= foreign_nodes, "backward: a backward function depends on ",
          node->op, ", which was computed outside of it: it must be an input");
    for (const auto& input : node->inputs)
      if (input && seen.insert(input.get()).second) nodes.push_back(input);
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const auto& a, const auto& b) { return a->number > b->number; });
  return nodes;
}

// Passes a node's gradient on to its inputs, and frees it and all that its backward captured.
void run_rule(detail::Node& node) {
  const Tensor grad_out = std::exchange(node.grad, {});
  const Backward rule = std::exchange(node.backward, nullptr);
  const Nodes inputs = std::exchange(node.inputs, {});
  node.done = true;

  // If a node occurs among the inputs again, its other slots get their own gradients: a backward
  // function may fill several slots at the same time.
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
    check(!slots[i] || slots[i].served(), "backward: the rule of ", node.op,
          " gave no gradient for input ", i);
    if (again[i].defined()) GradSlot(*inputs[i], inputs[i]->grad).take(std::move(again[i]));
  }
  if (observer && node.computes && !is_dry()) [[unlikely]] {
    std::vector<Tensor*> grads;
    for (const auto& input : inputs) grads.push_back(input ? &input->grad : nullptr);
    from_first(*observer, [&](OperationObserver& o) {
      o.on_gradients(node.op, node.number, grad_out, grads);
    });
  }
}

// Gives a leaf its own gradient: those of a and b in a + b, for example, are initially one tensor.
void settle_leaf(detail::Node& leaf) {
  if (leaf.grad.defined()) make_own(leaf.grad, leaf);
}

// Clears the gradients of all nodes but leaves.
void settle(const Nodes& nodes) {
  for (const auto& node : nodes) {
    if (node->leaf)
      settle_leaf(*node);
    else
      node->grad = Tensor();
  }
}

// For each node, the watched leaves to whose gradients it is the last to add.
class Watch {
 public:
  Watch(const Nodes& nodes, std::span<const std::shared_ptr<detail::Node>> watched) {
    std::unordered_map<const detail::Node*, const detail::Node*> last;
    for (const auto& leaf : watched)
      if (leaf) last.emplace(leaf.get(), nullptr);
    for (const auto& node : nodes)
      for (const auto& input : node->inputs)
        if (const auto found = last.find(input.get()); found != last.end())
          found->second = node.get();
    for (size_t i = 0; i < watched.size(); ++i)
      if (const auto found = last.find(watched[i].get()); found != last.end() && found->second)
        completed_by_[found->second].push_back(i);
  }

  // The indices of these leaves, in ascending order.
  std::span<const size_t> completed_by(const detail::Node* node) const {
    const auto found = completed_by_.find(node);
    return found == completed_by_.end() ? std::span<const size_t>() : found->second;
  }

 private:
  std::unordered_map<const detail::Node*, std::vector<size_t>> completed_by_;
};

}  // namespace

void backward(const Variable& root, const Tensor& seed) { backward(root, seed, {}, {}); }

void backward(const Variable& root, const Tensor& seed, std::span<const Variable> watched,
              const std::function<void(size_t)>& complete) {
  check(root.requires_grad(), "backward: the root depends on nothing that needs a gradient");
  if (seed.defined())
    check<ShapeError>(seed.shape() == root.shape() && seed.dtype() == root.dtype(),
                      "backward: expected a seed ", root.shape(), " of ", root.dtype(), ", got ",
                      seed.shape(), " of ", seed.dtype());
  else
    check<ShapeError>(root.value().numel() == 1, "backward: a root of shape ", root.shape(),
                      " requires a seed");

  const Nodes nodes = nodes_behind(root.node_);
  Nodes leaves;
  for (const Variable& leaf : watched) leaves.push_back(leaf.node_);
  const Watch watch(nodes, leaves);
  try {
    GradSlot(*root.node_, root.node_->grad)
        .take(seed.defined() ? seed : Tensor::full(root.shape(), 1.0, root.dtype()));
    for (const auto& node : nodes) {
      if (node->leaf) continue;
      run_rule(*node);
      for (const size_t i : watch.completed_by(node.get())) {
        settle_leaf(*leaves[i]);
        complete(i);
      }
    }
  } catch (...) {
    settle(nodes);
    throw;
  }
  settle(nodes);
}

}  // namespace longhand
