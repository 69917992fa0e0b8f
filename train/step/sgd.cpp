#include "longhand/core/kernels/elementwise.h"
#include "longhand/train/step/optimizer.h"

namespace longhand::train {
namespace {

template <class T>
struct Coefficients {
  T lr, scale, weight_decay, momentum;
};

// g' = s g + lambda theta;  b <- mu b + g';  theta <- theta - lr b, or theta - lr (g' + mu b).
template <class T, bool nesterov>
void update_momentum(T* theta, const T* grad, T* b, int64_t n, Coefficients<T> c) {
  simd([&] {
    for (int64_t i = 0; i < n; ++i) {
      const T g = c.scale * grad[i] + c.weight_decay * theta[i];
      b[i] = c.momentum * b[i] + g;
      theta[i] -= c.lr * (nesterov ? g + c.momentum * b[i] : b[i]);
    }
  });
}

template <class T>
void update_plain(T* theta, const T* grad, int64_t n, Coefficients<T> c) {
  simd([&] {
    for (int64_t i = 0; i < n; ++i)
      theta[i] -= c.lr * (c.scale * grad[i] + c.weight_decay * theta[i]);
  });
}

class Sgd : public Optimizer {
 public:
  Sgd(Parameters parameters, const SgdOptions& options)
      : Optimizer(std::move(parameters)), options_(options) {
    if (options.momentum > 0) b_ = add_moments("momentum");
  }

 protected:
  void update(const Part& part, double lr, double scale) override {
    const bool decays = options_.decay == Decay::all || part.shape.rank() >= 2;
    Tensor value = part.value;
    dispatch_float(value.dtype(), [&]<class T>() {
      const Coefficients<T> c{T(lr), T(scale), decays ? T(options_.weight_decay) : T{0},
                              T(options_.momentum)};
      T* const theta = value.data<T>();
      const T* const g = part.gradient.data<T>();
      T* const b = options_.momentum > 0 ? moment(b_, part.parameter).data<T>() : nullptr;
      parallel_for(value.numel(), kernels::elements_per_task, [&](int64_t begin, int64_t end) {
        if (!b)
          update_plain(theta + begin, g + begin, end - begin, c);
        else if (options_.nesterov)
          update_momentum<T, true>(theta + begin, g + begin, b + begin, end - begin, c);
        else
          update_momentum<T, false>(theta + begin, g + begin, b + begin, end - begin, c);
      });
    });
  }

 private:
  SgdOptions options_;
  size_t b_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(Parameters parameters, const SgdOptions& options) {
  check<ConfigError>(options.momentum >= 0 && options.momentum < 1, "sgd: momentum ",
                     options.momentum, ": expected a value in [0, 1)");
  check<ConfigError>(!options.nesterov || options.momentum > 0,
                     "sgd: nesterov requires momentum > 0");
  return std::make_unique<Sgd>(std::move(parameters), options);
}

}  // namespace longhand::train
