// y = (x - m) r w + b,  m = mean x,  r = (mean (x - m)² + eps)^(-1/2)
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/normalise.h"

namespace longhand {
using namespace ops;

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  return normalise_rows("layer_norm", x, weight, bias, eps, true);
}

}  // namespace longhand
