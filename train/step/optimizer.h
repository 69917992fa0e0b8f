// Optimizer: the base class of all optimizers.
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

/// Divides the elements of all parameters among processes: each updates a part of them.
class Division {
 public:
  virtual ~Division() = default;
  /// Returns this process's range of flat(x), where x has the shape and strides of parameter i.
  virtual Tensor own(size_t i, const Tensor& x) const = 0;
  /// Fills in the others' parts of tensors like parameters `first`, first + 1, …. Collective.
  virtual void complete(size_t first, std::span<const Tensor> tensors) const = 0;
  /// Whether this process saves the state.
  virtual bool leads() const = 0;
};

/// Base class of optimizers. Parameters are handles: a step changes the module they came from.
class Optimizer {
 public:
  /// Throws ShapeError for a parameter that is not dense in memory.
  explicit Optimizer(Parameters parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const Parameters& parameters() const { return parameters_; }

  /// Performs one step with these gradients (one per parameter), multiplied by `scale` in the same
  /// pass over memory. Parameters without a gradient are unchanged. Throws ShapeError if a gradient
  /// does not match its parameter.
  void step(double lr, const Gradients& gradients, double scale = 1);
  /// Performs one step with the gradients that backward() left in the parameters, and clears them.
  void step(double lr) { step(lr, take_gradients(parameters_)); }

  /// Returns the number of steps done.
  int64_t steps() const { return steps_; }

  /// From now on, each process keeps moving averages only for its part of the elements, updates it,
  /// and sends it to the others (ZeRO-1: Rajbhandari et al. 2020, arXiv 1910.02054). Results are
  /// bitwise identical. step() and state_dict() become collective.
  void divide(std::unique_ptr<const Division> division);

  /// Returns "step" and the moving averages, such as "m.blocks.0.mlp.fc1.weight". The tensors share
  /// memory with the optimizer: clone them to keep their values. After divide(), the leading
  /// process receives copies and the others receive nothing.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists every missing or unknown name and every wrong shape or dtype, and
  /// then changes nothing. Must not be called after divide().
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// Adds a zero-initialised tensor of moving averages for each parameter, or for those that `has`
  /// selects, saved as "PREFIX.NAME". Returns an index for moment().
  size_t add_moments(const std::string& prefix,
                     const std::function<bool(size_t parameter)>& has = nullptr);
  /// Returns the moving averages of a parameter's Part.
  Tensor& moment(size_t which, size_t parameter) { return moments_[which].second[parameter]; }

  /// The elements of a parameter that this process updates, in memory order: views with one axis,
  /// except that `shape` is the parameter's.
  struct Part {
    size_t parameter;
    Tensor value, gradient;
    const Shape& shape;
  };
  /// Updates a part. steps() already counts this step. Several threads may update parts
  /// concurrently.
  virtual void update(const Part& part, double lr, double scale) = 0;

 private:
  std::unique_ptr<const Division> division_;  // null: this process updates everything
  Parameters parameters_;
  int64_t steps_ = 0;
  std::vector<std::pair<std::string, std::vector<Tensor>>> moments_;
};

}  // namespace longhand::train
