#include "longhand/train/step/ema.h"

#include <algorithm>

#include "longhand/core/kernels/elementwise.h"
#include "longhand/train/step/moving_average.h"

namespace longhand::train {

Ema::Ema(Parameters parameters, double decay) : parameters_(std::move(parameters)), decay_(decay) {
  check<ConfigError>(decay > 0 && decay < 1, "ema: decay ", decay,
                     ": expected a value above 0 and below 1");
  check_average(parameters_, "ema", "decay", decay);
  for (const auto& [name, parameter] : parameters_) averages_.push_back(parameter.value().clone());
}

void Ema::update(int64_t t) {
  const double steps = static_cast<double>(t);
  const double d = std::min(decay_, (1 + steps) / (10 + steps));
  for (size_t i = 0; i < averages_.size(); ++i)
    dispatch_float(averages_[i].dtype(), [&]<class T>() {
      // Both have the same strides: the averages started as clones of dense parameters.
      T* const e = averages_[i].data<T>();
      const T* const theta = parameters_[i].second.value().data<T>();
      const MovingAverage<T> average(d);
      parallel_for(averages_[i].numel(), kernels::elements_per_task,
                   [&](int64_t begin, int64_t end) {
                     simd([=, a = average] {
                       for (int64_t j = begin; j < end; ++j) e[j] = a(e[j], theta[j]);
                     });
                   });
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
      // Equal strides here, too.
      T* const theta = parameters_[i].second.mutable_value().data<T>();
      std::swap_ranges(theta, theta + averages_[i].numel(), averages_[i].data<T>());
    });
}

}  // namespace longhand::train
