// Trading time for memory: forget the activations of a part of the graph, compute them again.
#pragma once

#include <functional>

#include "longhand/autograd/variable.h"

namespace longhand {

/// f(inputs), whose intermediate values are dropped at once and computed again when backward()
/// comes by. f must give the same bits both times (random numbers by counter, not by state); leaves
/// it closes over, such as parameters, get their gradients as well.
Variable recompute(const std::function<Variable(const Variables&)>& f, const Variables& inputs);

}  // namespace longhand
