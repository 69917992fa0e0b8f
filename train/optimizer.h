// Optimizers: SGD, Adam and AdamW.
#pragma once

#include <memory>
#include <string>

#include "longhand/core/schema.h"
#include "longhand/nn/module.h"
#include "longhand/train/gradients.h"

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

  /// "step" and the moving averages, such as "m.blocks.0.mlp.fc1.weight". The tensors share memory
  /// with the optimizer: clone them to keep their values.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists every missing or unknown name and every wrong shape or dtype;
  /// nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// Adds one tensor of moving averages for each parameter, initially zero and saved as
  /// "PREFIX.NAME". Returns an index for moment().
  size_t add_moments(const std::string& prefix);
  Tensor& moment(size_t which, size_t parameter) { return moments_[which].second[parameter]; }
  /// Updates parameter i. steps() already counts this step. Parameters may be updated on several threads
  /// at once.
  virtual void update(size_t i, Tensor& value, const Tensor& gradient, double lr, double scale) = 0;

 private:
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
