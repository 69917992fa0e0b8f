// Trading time for memory: forget the activations of a part of the graph, compute them again.
#pragma once

#include <functional>

#include "longhand/autograd/variable.h"

namespace longhand {

/// f(inputs), whose intermediate values are dropped at once and computed again when backward()
/// comes by. Chen et al. 2016 (arXiv 1604.06174).
///
/// f must give the same bits both times (random numbers by counter, not by state). It may close
/// over leaves, such as parameters, which get their gradients as well; other results that it needs
/// must be inputs, else backward() throws. What f may close over cannot be seen from outside, so
/// while gradients are recorded the result always counts as needing one, even if nothing behind it
/// does.
Variable recompute(const std::function<Variable(const Variables&)>& f, const Variables& inputs);

}  // namespace longhand
