// Optimizers: SGD, Adam and AdamW.
#pragma once

#include <memory>
#include <string>

#include "longhand/core/schema.h"
#include "longhand/nn/module.h"
#include "longhand/train/gradients.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

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

  /// Shares out the moving averages: from now on each rank keeps those of one part of all elements
  /// alone, updates that part, and sends it to the others (ZeRO-1: Rajbhandari et al. 2020, arXiv
  /// 1910.02054). The bits are the same. step() and state_dict() are then collective.
  void share(Communicator& ranks);

  /// "step" and the moving averages, such as "m.blocks.0.mlp.fc1.weight". The tensors share memory
  /// with the optimizer: clone them to keep their values. Once they are shared out, rank 0 receives
  /// copies of them, and the others nothing.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists every missing or unknown name and every wrong shape or dtype;
  /// nothing is changed then. Not after share().
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// Adds one tensor of moving averages for each parameter, initially zero and saved as
  /// "PREFIX.NAME". Returns an index for moment().
  size_t add_moments(const std::string& prefix);
  /// The moving averages of the elements of a Part.
  Tensor& moment(size_t which, size_t parameter) { return moments_[which].second[parameter]; }

  /// The elements of a parameter that this rank updates, in the order of memory: views of one axis,
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
  /// The range of elements of parameter i that this rank updates.
  struct Range {
    int64_t begin, end;
  };
  Range range(size_t i, int rank) const;
  void send_values();
  /// The moving averages of all elements of parameter i, on rank 0.
  Tensor gathered(size_t i, const Tensor& part) const;

  Communicator* ranks_ = nullptr;    // null: not shared out
  std::vector<int64_t> first_ = {};  // the number of elements before each parameter, and of all
  Parameters parameters_;
  int64_t steps_ = 0;
  std::vector<std::pair<std::string, std::vector<Tensor>>> moments_;
};

/// Parameters that weight decay applies to.
enum class Decay {
  all,
  matrices,  // those of rank 2 and higher: no biases, no weights of norms
};

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // L2: added to the gradient
  Decay decay = Decay::all;
};

/// Stochastic gradient descent with momentum: b <- mu b + g, theta <- theta - lr b, or, with
/// nesterov, theta <- theta - lr (g + mu b). Polyak 1964; Sutskever et al. 2013, in the form with
/// the learning rate outside of b, so that schedules take effect immediately.
std::unique_ptr<Optimizer> make_sgd(Parameters parameters, const SgdOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;  // added to sqrt(v / (1 - beta2^t)), after bias correction
  double weight_decay = 0;
  bool decoupled = true;  // AdamW; false: L2, added to the gradient
  Decay decay = Decay::all;
};

/// Adam: Kingma & Ba 2015 (arXiv 1412.6980), algorithm 1; AdamW: Loshchilov & Hutter 2019 (arXiv
/// 1711.05101), algorithm 2 with the decay multiplied by the rate, as is usual. Throws ConfigError
/// unless 0 <= beta < 1 and eps > 0, and for betas so close to 1 that the parameters' dtype cannot
/// average with them: 1 - beta below 9.5e-7 in f32, 1.8e-15 in f64.
std::unique_ptr<Optimizer> make_adam(Parameters parameters, const AdamOptions& options = {});

/// The options of the section [optimizer] other than those of the schedule.
struct OptimizerOptions {
  std::string type = "adamw";  // adamw | adam | sgd
  SgdOptions sgd{};            // with type sgd
  AdamOptions adam{};          // with the other types

  void describe(OptionVisitor& v);
};
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters parameters);

}  // namespace longhand::train
