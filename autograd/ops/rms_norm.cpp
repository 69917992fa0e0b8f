// y = x r w,  r = (mean x² + eps)^(-1/2)
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/normalise.h"

namespace longhand {
using namespace ops;

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  return normalise_rows("rms_norm", x, weight, {}, eps, false);
}

}  // namespace longhand
