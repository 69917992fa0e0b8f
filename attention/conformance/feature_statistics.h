// Evidence of performer: the mean and the error of random features as estimators of the softmax kernel, and of
// attention with them.
#pragma once

#include <vector>

#include "longhand/attention/registry.h"

namespace longhand::attention::conformance {

std::vector<Evidence> performer_evidence();

}  // namespace longhand::attention::conformance
