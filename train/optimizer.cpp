#include "longhand/train/optimizer.h"

#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/parallel.h"
#include "longhand/core/view.h"

namespace longhand::train {

Optimizer::Optimizer(Parameters parameters) : parameters_(std::move(parameters)) {
  for (const auto& [name, parameter] : parameters_)
    check<ShapeError>(parameter.value().is_dense(), "optimizer: ", name, " with shape ",
                      parameter.shape(), " and strides ", parameter.value().strides(),
                      ": expected a parameter that is dense in memory");
}

size_t Optimizer::add_moments(const std::string& prefix) {
  std::vector<Tensor> tensors;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor& value = parameter.value();
    tensors.push_back(Tensor::empty_ordered(value.shape(), value.dtype(), value.strides()));
    tensors.back().fill(0);
  }
  moments_.emplace_back(prefix, std::move(tensors));
  return moments_.size() - 1;
}

void Optimizer::step(double lr, const Gradients& gradients, double scale) {
  check<ShapeError>(gradients.size() == parameters_.size(), "optimizer: ", gradients.size(),
                    " gradients for ", parameters_.size(), " parameters");
  // All gradients are checked before any parameter changes.
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (!gradients[i]) continue;
    check<ShapeError>(
        gradients[i].shape() == parameter.shape() && gradients[i].dtype() == parameter.dtype(),
        "optimizer: ", name, ": expected a gradient of ", parameter.dtype(), " ", parameter.shape(),
        ", got ", gradients[i].dtype(), " ", gradients[i].shape());
  }
  ++steps_;
  // Neighbouring small parameters share a task; large ones are divided further by update().
  std::vector<int64_t> begin{0};
  int64_t elements = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    elements += parameters_[i].second.value().numel();
    if (elements < kernels::elements_per_task / 2 && i + 1 < parameters_.size()) continue;
    begin.push_back(static_cast<int64_t>(i) + 1);
    elements = 0;
  }
  parallel_for(static_cast<int64_t>(begin.size()) - 1, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = begin[first]; i < begin[last]; ++i) {
      Tensor& value = parameters_[i].second.mutable_value();
      if (gradients[i]) update(i, value, with_strides_of(gradients[i], value), lr, scale);
    }
  });
}

nn::StateDict Optimizer::state_dict() const {
  nn::StateDict out;
  out["step"] = Tensor::from(std::vector<int64_t>{steps_}, {});
  for (const auto& [prefix, tensors] : moments_)
    for (size_t i = 0; i < tensors.size(); ++i)
      out[prefix + "." + parameters_[i].first] = tensors[i];
  return out;
}

void Optimizer::load_state_dict(const nn::StateDict& state) {
  nn::StateDict own = state_dict();
  nn::check_state(own, state, "the optimizer");
  for (auto& [name, to] : own) copy_into(to, state.at(name));
  steps_ = *own.at("step").data<int64_t>();
}

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
