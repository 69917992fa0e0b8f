#include "longhand/train/optimizer.h"

#include "longhand/core/view.h"

namespace longhand::train {

Optimizer::Optimizer(Parameters parameters) : parameters_(std::move(parameters)) {
  for (const auto& [name, parameter] : parameters_)
    check<ShapeError>(parameter.value().is_dense(), "optimizer: ", name, " with shape ",
                      parameter.shape(), " and strides ", parameter.value().strides(),
                      " has holes in memory");
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
  // All of them are looked at before any parameter changes.
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (!gradients[i]) continue;
    check<ShapeError>(
        gradients[i].shape() == parameter.shape() && gradients[i].dtype() == parameter.dtype(),
        "optimizer: gradient of ", gradients[i].dtype(), " ", gradients[i].shape(), " for ", name,
        " of ", parameter.dtype(), " ", parameter.shape());
  }
  ++steps_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& value = parameters_[i].second.mutable_value();
    if (gradients[i]) update(i, value, with_strides_of(gradients[i], value), lr, scale);
  }
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

std::unique_ptr<Optimizer> make_optimizer(const Options& section, Parameters parameters) {
  const std::string type = section.get_choice("type", "adamw", {"adamw", "adam", "sgd"});
  const double weight_decay = section.get_double("weight_decay", type == "adamw" ? 0.01 : 0, 0);
  const Decay decay = section.get_choice("decay", "all", {"all", "matrices"}) == "all"
                          ? Decay::all
                          : Decay::matrices;
  if (type == "sgd") {
    const SgdOptions options{.momentum = section.get_double("momentum", 0, 0, 1),
                             .nesterov = section.get_bool("nesterov", false),
                             .weight_decay = weight_decay,
                             .decay = decay};
    section.require(options.momentum < 1, "momentum", "must be less than 1");
    section.require(!options.nesterov || options.momentum > 0, "nesterov", "needs a momentum");
    return make_sgd(std::move(parameters), options);
  }
  const AdamOptions options{.beta1 = section.get_double("beta1", 0.9, 0, 1),
                            .beta2 = section.get_double("beta2", 0.999, 0, 1),
                            .eps = section.get_double("eps", 1e-8, 0),
                            .weight_decay = weight_decay,
                            .decoupled = type == "adamw",
                            .decay = decay};
  section.require(options.beta1 < 1, "beta1", "must be less than 1");
  section.require(options.beta2 < 1, "beta2", "must be less than 1");
  section.require(options.eps > 0, "eps", "must be more than 0");
  return make_adam(std::move(parameters), options);
}

}  // namespace longhand::train
