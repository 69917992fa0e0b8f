// What layer_norm and rms_norm share.
#pragma once

#include <string_view>

#include "longhand/autograd/variable.h"

namespace longhand {

/// (x - m) r w + b along the last axis, r = (mean (x - m)² + eps)^(-1/2), where m is the mean of
/// the row if `centred`, else 0. w and b (n), either may be undefined.
Variable normalise_rows(std::string_view op, const Variable& x, const Variable& weight,
                        const Variable& bias, double eps, bool centred);

}  // namespace longhand
