#include "longhand/train/step/optimizer.h"

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

size_t Optimizer::add_moments(const std::string& prefix, const std::function<bool(size_t)>& has) {
  std::vector<Tensor> tensors;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor& value = parameter.value();
    if (has && !has(tensors.size())) {
      tensors.emplace_back();
      continue;
    }
    tensors.push_back(Tensor::empty_ordered(value.shape(), value.dtype(), value.strides()));
    tensors.back().fill(0);
  }
  moments_.emplace_back(prefix, std::move(tensors));
  return moments_.size() - 1;
}

void Optimizer::step(double lr, const Gradients& gradients, double scale) {
  check<ShapeError>(gradients.size() == parameters_.size(), "optimizer: ", gradients.size(),
                    " gradients for ", parameters_.size(), " parameters");
  // Check all gradients before any parameter changes.
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
      if (!gradients[i]) continue;
      const Tensor value = parameters_[i].second.value();
      const auto own = [&](const Tensor& x) { return division_ ? division_->own(i, x) : flat(x); };
      if (const Tensor part = own(value); part.numel() > 0)
        update({static_cast<size_t>(i), part, own(with_strides_of(gradients[i], value)),
                value.shape()},
               lr, scale);
    }
  });
  if (!division_) return;
  std::vector<Tensor> values;
  for (const auto& [name, parameter] : parameters_) values.push_back(parameter.value());
  division_->complete(0, values);
}

void Optimizer::divide(std::unique_ptr<const Division> division) {
  check(!division_, "optimizer: its state has been divided already");
  division_ = std::move(division);
  for (auto& [prefix, tensors] : moments_)
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].defined()) tensors[i] = division_->own(i, tensors[i]).clone();
}

nn::StateDict Optimizer::state_dict() const {
  const bool leads = !division_ || division_->leads();
  nn::StateDict out;
  if (leads) out["step"] = Tensor::from(std::vector<int64_t>{steps_}, {});
  for (const auto& [prefix, tensors] : moments_)
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      const auto& [name, parameter] = parameters_[i];
      Tensor all = tensors[i];
      if (division_) {
        const Tensor& value = parameter.value();
        all = Tensor::empty_ordered(value.shape(), value.dtype(), value.strides());
        copy_into(division_->own(i, all), tensors[i]);
        division_->complete(i, {&all, 1});
      }
      if (leads) out[prefix + "." + name] = all;
    }
  return out;
}

void Optimizer::load_state_dict(const nn::StateDict& state) {
  check(!division_, "optimizer: its state has been divided, and cannot be replaced");
  nn::StateDict own = state_dict();
  nn::check_state(own, state, "the optimizer");
  for (auto& [name, to] : own) copy_into(to, state.at(name));
  steps_ = *own.at("step").data<int64_t>();
}

}  // namespace longhand::train
