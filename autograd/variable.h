// Variable: a tensor that knows how it was computed; record(): how an operation tells.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "longhand/autograd/grad_mode.h"
#include "longhand/core/tensor.h"

namespace longhand {

class GradSlot;

/// The gradient rule of one operation. Given the gradient of its result, it serves each slot of
/// grad_in whose gradient somebody needs (the others are false), exactly once, by accumulate() or
/// take(). It must not write to grad_out, which may have any strides. It runs under NoGrad.
using Backward = std::function<void(const Tensor& grad_out, std::span<GradSlot> grad_in)>;

namespace detail {

/// One recorded operation, or a leaf. It holds no values: what a gradient rule needs, its capture
/// list holds, and nothing else stays alive.
struct Node {
  Shape shape;
  Strides strides;  // of a dense gradient
  DType dtype = DType::f32;
  uint64_t number = 0;  // of creation: a topological order
  std::string_view op;
  std::vector<std::shared_ptr<Node>> inputs;  // null where no gradient is needed
  Backward backward;                          // empty for leaves, and once it has run
  bool leaf = false;
  bool done = false;
  Tensor grad;

  ~Node();
};

}  // namespace detail

/// A handle: copies share the value and the place in the graph. Read-only but for the gradient.
class Variable {
 public:
  Variable() = default;
  /// A leaf. With requires_grad (floats only), backward() leaves its gradient in grad().
  explicit Variable(Tensor value, bool requires_grad = false);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  int rank() const { return value_.rank(); }
  int64_t size(int axis) const { return value_.size(axis); }
  bool requires_grad() const { return node_ != nullptr; }

  /// The gradient accumulated by backward(); undefined before, and for what is no leaf. It is
  /// dense, its axes lie in memory as the value's do, and it shares its memory with nobody.
  const Tensor& grad() const;
  /// Gives the gradient away: grad() is undefined afterwards, and the next backward() starts
  /// afresh.
  Tensor take_grad();
  void zero_grad() { take_grad(); }

  /// The same value, without the graph behind it.
  Variable detach() const { return Variable(value_); }

  /// The value, to be changed in place: for optimizers and for loading. Nobody checks that a
  /// recorded operation does not need the old value.
  Tensor& mutable_value() { return value_; }

 private:
  friend Variable record(std::string_view, Tensor, std::span<const Variable>, Backward);
  friend void backward(const Variable&, const Tensor&);

  Tensor value_;
  std::shared_ptr<detail::Node> node_;
};

using Variables = std::vector<Variable>;

/// Where the gradient of one input goes. Slots are independent, even those of one Variable given
/// twice: a rule may fill several in one loop.
class GradSlot {
 public:
  /// A false one.
  GradSlot() = default;
  /// One that adds to `grad`, as a gradient of the node's result.
  GradSlot(const detail::Node& node, Tensor& grad) : node_(&node), grad_(&grad) {}

  /// False: nobody needs this gradient, skip the work.
  explicit operator bool() const { return node_ != nullptr; }

  /// Nothing is there yet: beta of accumulate() will be 0.
  bool fresh() const { return !grad_->defined(); }

  struct Accumulator {
    Tensor& grad;
    double beta;
  };
  /// The place to write grad = beta * grad + g, all of it. beta is 0 on first use, when grad is
  /// fresh memory that must not be read (it may hold NaN), or else 1. grad has the shape and dtype
  /// of the input and is dense in the same order of axes.
  Accumulator accumulate();

  /// Hands over a finished gradient, of any strides: it may be, or view, grad_out or what the rule
  /// has captured. Added to what is there.
  void take(Tensor grad);

  bool served() const { return served_; }

 private:
  void serve();

  const detail::Node* node_ = nullptr;
  Tensor* grad_ = nullptr;
  bool served_ = false;
};

/// The result of an operation as a Variable that remembers its inputs and its gradient rule; if no
/// input needs a gradient, or none is recorded (NoGrad), the rule is dropped. `op` must outlive the
/// program (a literal).
Variable record(std::string_view op, Tensor out, std::span<const Variable> inputs,
                Backward backward);
inline Variable record(std::string_view op, Tensor out, std::initializer_list<Variable> inputs,
                       Backward backward) {
  return record(op, std::move(out), std::span<const Variable>(inputs.begin(), inputs.size()),
                std::move(backward));
}

/// Adds d root / d leaf, times seed, to the grad() of every leaf behind root, and frees the graph.
/// Without a seed root must have one element, and the seed is 1. Gradients are first-order: there
/// is no graph of the backward pass.
///
/// Throws Error if the graph was freed already or a gradient rule left out a gradient that is
/// needed (naming the operation and input), ShapeError if the seed does not have root's shape. What
/// a rule throws passes through; then some leaves may have their gradients and others not.
///
/// Graphs may be built and run on several threads at once if they have no leaf in common.
void backward(const Variable& root, const Tensor& seed = {});

}  // namespace longhand
