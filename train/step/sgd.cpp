#include "longhand/core/kernels/elementwise.h"
#include "longhand/train/step/optimizers.h"

namespace longhand::train {
namespace {

template <class T>
struct Coefficients {
  T lr, scale, weight_decay, momentum;
};

enum class Momentum { none, polyak, nesterov };

// g' = s g + lambda theta; theta <- theta - lr g', or with b <- mu b + g': theta - lr b (Polyak) or
// theta - lr (g' + mu b) (Nesterov).
template <class T, Momentum momentum>
void update_sgd(T* theta, const T* grad, T* b, int64_t n, Coefficients<T> c) {
  simd([&] {
    for (int64_t i = 0; i < n; ++i) {
      T g = c.scale * grad[i] + c.weight_decay * theta[i];
      if constexpr (momentum != Momentum::none) {
        b[i] = c.momentum * b[i] + g;
        g = momentum == Momentum::nesterov ? g + c.momentum * b[i] : b[i];
      }
      theta[i] -= c.lr * g;
    }
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
      const auto kernel = !b                  ? update_sgd<T, Momentum::none>
                          : options_.nesterov ? update_sgd<T, Momentum::nesterov>
                                              : update_sgd<T, Momentum::polyak>;
      parallel_for(value.numel(), kernels::elements_per_task, [&](int64_t begin, int64_t end) {
        kernel(theta + begin, g + begin, b ? b + begin : nullptr, end - begin, c);
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
