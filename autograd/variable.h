// Variable: a tensor with its computation graph; record() adds operations to the graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "longhand/autograd/grad_mode.h"
#include "longhand/core/memory/recycled.h"
#include "longhand/core/tensor.h"

namespace longhand {

class GradSlot;
class Variable;
using Variables = ShortVector<Variable>;

/// The backward function of an operation. Given the gradient of its result, it fills each slot of
/// grad_in that is true (the others need no gradient), exactly once, by accumulate() or take(). It
/// must not write to grad_out, which may have any strides. It runs under NoGrad.
using Backward = std::function<void(const Tensor& grad_out, std::span<GradSlot> grad_in)>;

/// The backward function of an operation with several results: grads_out holds the gradient of
/// each, zeros for a result that the root does not depend on.
using BackwardOfAll =
    std::function<void(std::span<const Tensor> grads_out, std::span<GradSlot> grad_in)>;

namespace detail {

/// A recorded operation, or a leaf. It holds no values: only what the backward function has
/// captured stays alive.
struct Node {
  Shape shape;
  Strides strides;  // of a dense gradient
  DType dtype = DType::f32;
  uint64_t number = 0;  // in order of creation, which is a topological order
  std::string_view op;
  std::vector<std::shared_ptr<Node>> inputs;  // null if no gradient is needed
  Backward backward;                          // empty for leaves, and once it has run
  bool leaf = false;
  bool done = false;
  bool computes = true;  // false: a result of record_all() that only passes its gradient on
  Tensor grad;

  ~Node();
};

/// Like record() below; the backward function is empty unless the operation is recorded.
Variable record(std::string_view op, Tensor out, std::span<const Variable> inputs,
                Backward backward);
Variables record_all(std::string_view op, const ShortVector<Tensor>& outs,
                     std::span<const Variable> inputs, BackwardOfAll backward);
/// The two halves of record(): the result, and the notice to observers. `recorded` has the node.
Variable make_result(std::string_view op, Tensor out, std::span<const Variable> inputs,
                     Backward backward);
void notify_observer(std::string_view op, std::span<const Variable> inputs,
                     const Variable& recorded, Variable& result);

}  // namespace detail

/// A handle: copies share the value and the node of the graph. Read-only except for the gradient.
class Variable {
 public:
  Variable() = default;
  /// A leaf. With requires_grad (float dtypes only), backward() adds to its grad().
  explicit Variable(Tensor value, bool requires_grad = false);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  int rank() const { return value_.rank(); }
  int64_t size(int axis) const { return value_.size(axis); }
  bool requires_grad() const { return node_ != nullptr; }

  /// The gradient accumulated by backward(); undefined before that, and unless this is a leaf. It
  /// is dense, with its axes in the value's memory order, and does not share its memory.
  const Tensor& grad() const;
  /// Moves the gradient out: grad() is undefined afterwards, and the next backward() starts from
  /// zero.
  Tensor take_grad();
  void zero_grad() { take_grad(); }

  /// The same value, without its graph.
  Variable detach() const { return Variable(value_); }

  /// The value, for modification in place by optimizers and when loading. It is not checked whether
  /// a recorded operation still needs the old value.
  Tensor& mutable_value() { return value_; }

 private:
  friend Variable detail::make_result(std::string_view, Tensor, std::span<const Variable>,
                                      Backward);
  friend void detail::notify_observer(std::string_view, std::span<const Variable>, const Variable&,
                                      Variable&);
  friend Variables detail::record_all(std::string_view, const ShortVector<Tensor>&,
                                      std::span<const Variable>, BackwardOfAll);
  friend void backward(const Variable&, const Tensor&, std::span<const Variable>,
                       const std::function<void(size_t)>&);

  Tensor value_;
  std::shared_ptr<detail::Node> node_;
};

/// Receives the gradient of one input. Slots are independent, even for a Variable that is an input
/// twice: a backward function may fill several in one loop.
class GradSlot {
 public:
  /// A false slot, of an input that needs no gradient.
  GradSlot() = default;
  /// A slot that adds to `grad`, the gradient of the node's result.
  GradSlot(const detail::Node& node, Tensor& grad) : node_(&node), grad_(&grad) {}

  /// Whether the gradient is needed; if not, skip the work.
  explicit operator bool() const { return node_ != nullptr; }

  /// Whether there is no gradient yet, in which case beta of accumulate() will be 0.
  bool fresh() const { return !grad_->defined(); }

  struct Accumulator {
    Tensor& grad;
    double beta;
  };
  /// Returns memory in which to write grad = beta * grad + g, every element. beta is 0 on first
  /// use, when grad is uninitialised and must not be read (it may hold NaN), and 1 after that. grad
  /// has the shape and dtype of the input and is dense, in the same order of axes.
  Accumulator accumulate();

  /// Adds a finished gradient, with any strides. It may be, or be a view of, grad_out or a captured
  /// tensor; the first one is kept without a copy.
  void take(Tensor grad);

  bool served() const { return served_; }

 private:
  void serve();

  const detail::Node* node_ = nullptr;
  Tensor* grad_ = nullptr;
  bool served_ = false;
};

/// Whether an operation with these inputs is recorded: one of them needs a gradient, and recording
/// is enabled (no NoGrad).
bool is_recorded(std::span<const Variable> inputs);

/// Returns the result of an operation as a Variable with its inputs and backward function, which is
/// dropped unless is_recorded(). `op` must have static lifetime (a literal). Only a backward
/// function that is kept becomes a std::function, which usually allocates memory.
template <class F = Backward>
Variable record(std::string_view op, Tensor out, std::span<const Variable> inputs, F backward) {
  return detail::record(op, std::move(out), inputs,
                        is_recorded(inputs) ? Backward(std::move(backward)) : Backward());
}
template <class F = Backward>
Variable record(std::string_view op, Tensor out, std::initializer_list<Variable> inputs,
                F backward) {
  return record(op, std::move(out), std::span<const Variable>(inputs.begin(), inputs.size()),
                std::move(backward));
}

/// Like record(), for an operation with several results. The backward function runs once, if the
/// root depends on any of them.
template <class F = BackwardOfAll>
Variables record_all(std::string_view op, const ShortVector<Tensor>& outs,
                     std::span<const Variable> inputs, F backward) {
  return detail::record_all(
      op, outs, inputs, is_recorded(inputs) ? BackwardOfAll(std::move(backward)) : BackwardOfAll());
}

/// Adds seed times d root / d leaf to the grad() of every leaf that root depends on, and frees the
/// graph. Without a seed, root must have one element, and the seed is 1. Gradients are first-order:
/// the backward pass is not recorded.
///
/// Throws Error if the graph has already been freed or a backward function omits a required
/// gradient (naming the operation and the input), ShapeError if the seed does not have root's
/// shape. Exceptions of backward functions propagate; some leaves may then have no gradients.
///
/// Graphs that share no leaf may be built and differentiated on several threads concurrently.
void backward(const Variable& root, const Tensor& seed = {});

/// Like backward() above, and also calls complete(i) as soon as nothing more will be added to the
/// gradient of the leaf watched[i], which may then be taken and used while the backward pass goes
/// on. The order of the calls depends on the graph alone. Leaves that root does not depend on, or
/// only through recompute(), are not reported.
void backward(const Variable& root, const Tensor& seed, std::span<const Variable> watched,
              const std::function<void(size_t)>& complete);

}  // namespace longhand
