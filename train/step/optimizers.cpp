#include "longhand/train/step/optimizers.h"

#include <utility>

#include "longhand/core/error.h"

namespace longhand::train {

void OptimizerOptions::describe(OptionVisitor& v) {
  v.choice("type", type, {"adamw", "adam", "muon", "sgd"}, "optimisation algorithm");
  const bool decoupled = type == "adamw" || type == "muon";
  double weight_decay = decoupled ? 0.01 : 0;
  v.number("weight_decay", weight_decay, {0},
           "weight decay coefficient; with adamw and muon: decoupled, scaled by the learning rate; "
           "otherwise: L2, added to the gradient",
           "0.01 with adamw and muon, else 0.0");
  Decay decay = Decay::all;
  v.choice("decay", decay, {{"all", Decay::all}, {"matrices", Decay::matrices}},
           "parameters that weight decay applies to; matrices: those with at least 2 dimensions");
  sgd.weight_decay = adam.weight_decay = weight_decay;
  sgd.decay = adam.decay = decay;
  adam.decoupled = decoupled;
  v.when(type != "sgd", "type = \"adamw\", \"adam\" or \"muon\"", [&] {
    v.number("beta1", adam.beta1, NumberRange::fraction(),
             "decay rate of the running mean of gradients");
    v.number("beta2", adam.beta2, NumberRange::fraction(),
             "decay rate of the running mean of squared gradients");
    v.number("eps", adam.eps, NumberRange::above(0),
             "added to the denominator, the square root of the mean of squared gradients");
  });
  v.when(type == "sgd" || type == "muon", "type = \"sgd\" or \"muon\"", [&] {
    double& momentum = type == "muon" ? muon.momentum : sgd.momentum;
    v.number("momentum", momentum, NumberRange::fraction(),
             "decay rate of the running sum of gradients; with muon: of their mean",
             "0.95 with muon, else 0.0");
  });
  v.when(type == "sgd" && sgd.momentum > 0, "type = \"sgd\" and momentum above 0",
         [&] { v.boolean("nesterov", sgd.nesterov, "whether to use Nesterov momentum"); });
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters parameters) {
  if (options.type == "sgd") return make_sgd(std::move(parameters), options.sgd);
  if (options.type == "muon") {
    MuonOptions muon = options.muon;
    muon.others = options.adam;
    return make_muon(std::move(parameters), muon);
  }
  check<ConfigError>(options.type == "adamw" || options.type == "adam",
                     "optimizer: expected type adamw, adam, muon or sgd, got \"", options.type,
                     "\"");
  return make_adam(std::move(parameters), options.adam);
}

}  // namespace longhand::train
