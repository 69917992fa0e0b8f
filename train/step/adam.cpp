#include "longhand/train/step/adam.h"

#include <cmath>

#include "longhand/core/kernels/elementwise.h"
#include "longhand/train/step/moving_average.h"

namespace longhand::train {
namespace {

template <class T>
struct Coefficients {
  T scale;         // s
  T keep;          // 1 - lr lambda: decoupled decay
  T weight_decay;  // lambda, if added to the gradient
  MovingAverage<T> m, v;
  T step;  // lr / (1 - beta1^t)
  T root;  // 1 / sqrt(1 - beta2^t)
  T eps;
};

// g' = s g + lambda theta;  m <- beta1 m + (1 - beta1) g';  v <- beta2 v + (1 - beta2) g'²;
// theta <- (1 - lr lambda) theta - lr m^ / (sqrt(v^) + eps),  m^ = m / (1 - beta1^t),
// v^ = v / (1 - beta2^t): one pass over memory for all four arrays.
template <class T>
void update_adam(T* __restrict theta, const T* __restrict grad, T* __restrict m, T* __restrict v,
                 int64_t n, const Coefficients<T>& coefficients) {
  simd([=] {
    const Coefficients<T> c = coefficients;  // a local copy: no store can alias it
    for (int64_t i = 0; i < n; ++i) {
      const T g = c.scale * grad[i] + c.weight_decay * theta[i];
      m[i] = c.m(m[i], g);
      v[i] = c.v(v[i], g * g);
      theta[i] = c.keep * theta[i] - c.step * m[i] / (std::sqrt(v[i]) * c.root + c.eps);
    }
  });
}

}  // namespace

Adam::Adam(Parameters parameters, const AdamOptions& options,
           const std::function<bool(size_t)>& has)
    : Optimizer(std::move(parameters)),
      options_(options),
      m_(add_moments("m", has)),
      v_(add_moments("v", has)) {
  for (const auto& [name, beta] : {std::pair("beta1", options.beta1), {"beta2", options.beta2}}) {
    check<ConfigError>(beta >= 0 && beta < 1, "adam: ", name, " is ", beta,
                       ", expected 0 <= ", name, " < 1");
    check_average(this->parameters(), "adam", name, beta);
  }
  check<ConfigError>(options.eps > 0, "adam: eps ", options.eps, ": expected a value above 0");
}

void Adam::update(const Part& part, double lr, double scale) {
  const auto& o = options_;
  const bool decays = o.decay == Decay::all || part.shape.rank() >= 2;
  const double lambda = decays ? o.weight_decay : 0;
  const double t = static_cast<double>(steps());
  Tensor value = part.value;
  dispatch_float(value.dtype(), [&]<class T>() {
    const MovingAverage<T> average_m(o.beta1), average_v(o.beta2);
    const Coefficients<T> c{.scale = T(scale),
                            .keep = o.decoupled ? T(1 - lr * lambda) : T{1},
                            .weight_decay = o.decoupled ? T{0} : T(lambda),
                            .m = average_m,
                            .v = average_v,
                            .step = T(lr / average_m.total_weight(t)),
                            .root = T(1 / std::sqrt(average_v.total_weight(t))),
                            .eps = T(o.eps)};
    T* const theta = value.data<T>();
    const T* const g = part.gradient.data<T>();
    T* const m = moment(m_, part.parameter).data<T>();
    T* const v = moment(v_, part.parameter).data<T>();
    parallel_for(value.numel(), kernels::elements_per_task, [&](int64_t begin, int64_t end) {
      update_adam(theta + begin, g + begin, m + begin, v + begin, end - begin, c);
    });
  });
}

std::unique_ptr<Optimizer> make_adam(Parameters parameters, const AdamOptions& options) {
  return std::make_unique<Adam>(std::move(parameters), options);
}

}  // namespace longhand::train
