// y = h r w,  h = x s,  s = 1 / (1 + e^-x),  r = (mean h² + eps)^(-1/2)
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/normalise.h"

namespace longhand {
using namespace ops;

Variable silu_rms_norm(const Variable& x, const Variable& weight, double eps) {
  return normalise_rows("silu_rms_norm", x, weight, {}, eps, false, true);
}

}  // namespace longhand
