// Divides the elements of all parameters evenly over ranks.
#pragma once

#include <memory>

#include "longhand/train/step/optimizer.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// Divides all elements into equal parts, regardless of parameter boundaries. Throws ShapeError
/// unless all parameters have the same dtype. `ranks` must outlive the result.
std::unique_ptr<Division> rank_division(Communicator& ranks, const Parameters& parameters);

}  // namespace longhand::train
