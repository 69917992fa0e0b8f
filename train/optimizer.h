// Optimizer: what turns gradients into new parameters. SGD, Adam and AdamW.
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

  /// One step with these gradients (one a parameter), multiplied by `scale` in the same pass over
  /// memory. A parameter without gradient stays as it is. Throws ShapeError for gradients that do
  /// not fit.
  void step(double lr, const Gradients& gradients, double scale = 1);
  /// One step with the gradients that backward() left in the parameters, which are taken away.
  void step(double lr) { step(lr, take_gradients(parameters_)); }

  /// Steps done.
  int64_t steps() const { return steps_; }

  /// "step" and the moving averages, such as "m.blocks.0.mlp.fc1.weight". The tensors share memory
  /// with the optimizer: clone what is to be kept.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists every missing or unknown name and every wrong shape or dtype;
  /// nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

 protected:
  /// One tensor of moving averages for each parameter, zero at first, saved as "PREFIX.NAME".
  /// The result is an index for moment().
  size_t add_moments(const std::string& prefix);
  Tensor& moment(size_t which, size_t parameter) { return moments_[which].second[parameter]; }
  /// The new values of parameter i. steps() counts this step already.
  virtual void update(size_t i, Tensor& value, const Tensor& gradient, double lr, double scale) = 0;

 private:
  Parameters parameters_;
  int64_t steps_ = 0;
  std::vector<std::pair<std::string, std::vector<Tensor>>> moments_;
};

/// Which parameters weight decay acts on.
enum class Decay {
  all,
  matrices,  // those of rank 2 and more: no biases, no gains of norms
};

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // L2: added to the gradient
  Decay decay = Decay::all;
};

/// Stochastic gradient descent with momentum: b <- mu b + g, theta <- theta - lr b, or, with
/// nesterov, theta <- theta - lr (g + mu b). Polyak 1964; Sutskever et al. 2013, in the form where
/// the rate stands outside of b, so that schedules act at once.
std::unique_ptr<Optimizer> make_sgd(Parameters parameters, const SgdOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;  // added to sqrt(v / (1 - beta2^t)): after the correction
  double weight_decay = 0;
  bool decoupled = true;  // AdamW; false: L2, added to the gradient
  Decay decay = Decay::all;
};

/// Adam: Kingma & Ba 2015 (arXiv 1412.6980), algorithm 1; AdamW: Loshchilov & Hutter 2019 (arXiv
/// 1711.05101), algorithm 2 with the decay multiplied by the rate, as is usual. Throws ConfigError
/// unless 0 <= beta < 1 and eps > 0, and for betas so near 1 that the parameters' dtype cannot
/// average with them: 1 - beta below 9.5e-7 in f32, 1.8e-15 in f64.
std::unique_ptr<Optimizer> make_adam(Parameters parameters, const AdamOptions& options = {});

/// Which optimizer, and how: those options of the section [optimizer] that are not the schedule's.
struct OptimizerOptions {
  std::string type = "adamw";  // adamw | adam | sgd
  SgdOptions sgd{};            // of type sgd
  AdamOptions adam{};          // of the others

  void describe(OptionVisitor& v);
};
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters parameters);

}  // namespace longhand::train
