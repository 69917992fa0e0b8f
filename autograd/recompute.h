// Activation checkpointing: drops the activations of a part of the graph and recomputes them.
#pragma once

#include <functional>

#include "longhand/autograd/variable.h"

namespace longhand {

/// Returns f(inputs), but drops its intermediate values, which backward() computes again. Chen et
/// al. 2016 (arXiv 1604.06174).
///
/// f must be bitwise reproducible (random numbers by counter, not by state). It may capture leaves,
/// such as parameters, which get their gradients as well; all other results that it uses must be
/// inputs, or backward() throws. Since the captures of f are unknown, the result is always recorded
/// as one that needs a gradient while recording is enabled, even if nothing that it depends on
/// does.
Variable recompute(const std::function<Variable(const Variables&)>& f, const Variables& inputs);

}  // namespace longhand
