// The elements of all parameters, divided evenly over ranks.
#pragma once

#include <memory>

#include "longhand/train/step/optimizer.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// Equal parts of all elements, whichever parameters they belong to. Throws ShapeError unless all
/// parameters have one dtype. `ranks` must outlive the result.
std::unique_ptr<Division> rank_division(Communicator& ranks, const Parameters& parameters);

}  // namespace longhand::train
