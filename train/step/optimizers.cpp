#include "longhand/train/step/optimizers.h"

#include <utility>

#include "longhand/core/error.h"

namespace longhand::train {

void OptimizerOptions::describe(OptionVisitor& v) {
  v.choice("type", type, {"adamw", "adam", "sgd"}, "optimisation algorithm");
  double weight_decay = type == "adamw" ? 0.01 : 0;
  v.number("weight_decay", weight_decay, {0},
           "weight decay coefficient; with adamw: decoupled, scaled by the learning rate; "
           "otherwise: L2, added to the gradient",
           "0.01 with adamw, else 0.0");
  Decay decay = Decay::all;
  v.choice("decay", decay, {{"all", Decay::all}, {"matrices", Decay::matrices}},
           "parameters that weight decay applies to; matrices: those with at least 2 dimensions");
  sgd.weight_decay = adam.weight_decay = weight_decay;
  sgd.decay = adam.decay = decay;
  adam.decoupled = type == "adamw";
  v.when(type != "sgd", "type = \"adamw\" or \"adam\"", [&] {
    v.number("beta1", adam.beta1, NumberRange::fraction(),
             "decay rate of the running mean of gradients");
    v.number("beta2", adam.beta2, NumberRange::fraction(),
             "decay rate of the running mean of squared gradients");
    v.number("eps", adam.eps, NumberRange::above(0),
             "added to the denominator, the square root of the mean of squared gradients");
  });
  v.when(type == "sgd", "type = \"sgd\"", [&] {
    v.number("momentum", sgd.momentum, NumberRange::fraction(),
             "decay rate of the running sum of gradients");
    v.when(sgd.momentum > 0, "momentum above 0",
           [&] { v.boolean("nesterov", sgd.nesterov, "whether to use Nesterov momentum"); });
  });
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters parameters) {
  if (options.type == "sgd") return make_sgd(std::move(parameters), options.sgd);
  check<ConfigError>(options.type == "adamw" || options.type == "adam",
                     "optimizer: expected type adamw, adam or sgd, got \"", options.type, "\"");
  return make_adam(std::move(parameters), options.adam);
}

}  // namespace longhand::train
