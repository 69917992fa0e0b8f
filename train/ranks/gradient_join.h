// The sum of the gradients of all ranks, while the backward pass computes the next ones.
#pragma once

#include <memory>

#include "longhand/train/ranks/grid.h"
#include "longhand/train/step/gradients.h"

namespace longhand::train {

/// Adds up gradients in buckets: as soon as all gradients of a bucket are known, it is sent, last
/// parameters first, since a backward pass ends with the first ones. Collective operations begin in the
/// same order on all ranks, whatever the order in which gradients are added. The sum over the data ranks
/// continues the tree of TreeSum: the bits do not depend on the number of ranks. `parameters`, which must
/// be the same on all ranks, and `grid` must outlive the result.
std::unique_ptr<GradientSum> gradient_join(const Parameters& parameters, const RankGrid& grid);

}  // namespace longhand::train
