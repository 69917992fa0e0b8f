#include "longhand/nn/init.h"

#include <cmath>

namespace longhand::nn::init {

Init constant(double value) {
  return [value](Tensor& t, const Generator&) { t.fill(value); };
}

Init normal(double std) {
  return [std](Tensor& t, const Generator& random) { fill_normal(t, random, 0, std); };
}

Init uniform(double bound) {
  return [bound](Tensor& t, const Generator& random) { fill_uniform(t, random, -bound, bound); };
}

Init xavier_uniform(double gain) {
  return [gain](Tensor& t, const Generator& random) {
    check<ShapeError>(t.rank() >= 2, "xavier_uniform: expected rank 2 or higher, got shape ",
                      t.shape());
    const double a = gain * std::sqrt(6.0 / static_cast<double>(t.size(-2) + t.size(-1)));
    fill_uniform(t, random, -a, a);
  };
}

}  // namespace longhand::nn::init
