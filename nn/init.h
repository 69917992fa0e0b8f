// Named initialisers of parameters.
#pragma once

#include "longhand/nn/module.h"

namespace longhand::nn::init {

Init constant(double value);
inline Init zeros() { return constant(0); }
inline Init ones() { return constant(1); }
Init normal(double std);
/// U(-bound, bound).
Init uniform(double bound);
/// U(-a, a), a = gain sqrt(6 / (in + out)), for weights (out, in) or stacks of them (…, out, in).
/// Glorot & Bengio 2010, eq. 16.
Init xavier_uniform(double gain = 1);

}  // namespace longhand::nn::init
