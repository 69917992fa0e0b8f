#include "longhand/train/ema.h"

#include <algorithm>

#include "longhand/core/kernels/elementwise.h"

namespace longhand::train {

Ema::Ema(Parameters parameters, double decay) : parameters_(std::move(parameters)), decay_(decay) {
  check<ConfigError>(decay > 0 && decay < 1, "ema: decay ", decay, " must be between 0 and 1");
  for (const auto& [name, parameter] : parameters_) averages_.push_back(parameter.value().clone());
}

void Ema::update(int64_t t) {
  const double steps = static_cast<double>(t);
  const double d = std::min(decay_, (1 + steps) / (10 + steps));
  for (size_t i = 0; i < averages_.size(); ++i)
    dispatch_float(averages_[i].dtype(), [&]<class T>() {
      kernels::elementwise_accumulate<T>(
          averages_[i], T(d), [rest = T(1 - d)](T theta) { return rest * theta; },
          kernels::in<T>(parameters_[i].second.value()));
    });
}

nn::StateDict Ema::state_dict() const {
  nn::StateDict out;
  for (size_t i = 0; i < averages_.size(); ++i) out[parameters_[i].first] = averages_[i];
  return out;
}

void Ema::load_state_dict(const nn::StateDict& state) {
  nn::StateDict own = state_dict();
  nn::check_state(own, state, "the averaged weights");
  for (auto& [name, to] : own) copy_into(to, state.at(name));
}

void Ema::swap() {
  for (size_t i = 0; i < averages_.size(); ++i)
    dispatch_float(averages_[i].dtype(), [&]<class T>() {
      // Both lie in memory alike: the averages began as clones of dense parameters.
      T* const theta = parameters_[i].second.mutable_value().data<T>();
      std::swap_ranges(theta, theta + averages_[i].numel(), averages_[i].data<T>());
    });
}

}  // namespace longhand::train
