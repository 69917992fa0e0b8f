// Optimizer: the base of all optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhand/nn/module.h"
#include "longhand/train/step/gradients.h"

namespace longhand::train {

/// How several processes divide the elements of all parameters: each updates a part of them.
class Division {
 public:
  virtual ~Division() = default;
  /// The part of this process of x, which has the shape and strides of parameter i: a range of flat(x).
  virtual Tensor own(size_t i, const Tensor& x) const = 0;
  /// Fills in the parts of all others in tensors like parameters `first`, first + 1, …. Collective.
  virtual void complete(size_t first, std::span<const Tensor> tensors) const = 0;
  /// Whether this process saves the state.
  virtual bool leads() const = 0;
};

/// Base of all optimizers. Parameters are handles: a step changes the module they came from.
class Optimizer {
 public:
  /// Throws ShapeError for a parameter that is not dense in memory.
  explicit Optimizer(Parameters parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const Parameters& parameters() const { return parameters_; }

  /// Performs one step with these gradients (one per parameter), multiplied by `scale` in the same
  /// pass over memory. A parameter without a gradient is unchanged. Throws ShapeError if a gradient
  /// does not match its parameter.
  void step(double lr, const Gradients& gradients, double scale = 1);
  /// Performs one step with the gradients that backward() left in the parameters, and clears them.
  void step(double lr) { step(lr, take_gradients(parameters_)); }

  /// Number of steps done.
  int64_t steps() const { return steps_; }

  /// From now on each process keeps the moving averages of its part of all elements alone, updates that
  /// part, and sends it to the others (ZeRO-1: Rajbhandari et al. 2020, arXiv 1910.02054). The bits are
  /// the same. step() and state_dict() are then collective.
  void divide(std::unique_ptr<const Division> division);

  /// "step" and the moving averages, such as "m.blocks.0.mlp.fc1.weight". The tensors share memory
  /// with the optimizer: clone them to keep their values. Once they are divided, the process that leads
  /// receives copies of them, and the others nothing.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists every missing or unknown name and every wrong shape or dtype;
  /// nothing is changed then. Not after divide().
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// Adds one tensor of moving averages for each parameter, or for those that `has` says, initially
  /// zero and saved as "PREFIX.NAME". Returns an index for moment().
  size_t add_moments(const std::string& prefix,
                     const std::function<bool(size_t parameter)>& has = nullptr);
  /// The moving averages of the elements of a Part.
  Tensor& moment(size_t which, size_t parameter) { return moments_[which].second[parameter]; }

  /// The elements of a parameter that this process updates, in the order of memory: views of one axis,
  /// but `shape` is that of the parameter.
  struct Part {
    size_t parameter;
    Tensor value, gradient;
    const Shape& shape;
  };
  /// Updates a part. steps() already counts this step. Parts may be updated on several threads at
  /// once.
  virtual void update(const Part& part, double lr, double scale) = 0;

 private:
  std::unique_ptr<const Division> division_;  // null: this process updates everything
  Parameters parameters_;
  int64_t steps_ = 0;
  std::vector<std::pair<std::string, std::vector<Tensor>>> moments_;
};

}  // namespace longhand::train
