// Attention maps: the weights that a variant gives to keys, and measures of their shape.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/attention/variant.h"

namespace longhand::attention::analysis {

/// The weights (B, H, N, M) by which a variant multiplies values. Computed from its results for
/// unit vectors as values, D keys at a time, which is exact because results are linear in v; they
/// equal the weights of its definition (see definitions/). They are differentiable in everything
/// that they depend on, and cost M / D times as much as forward(). Only the shape of Inputs::v
/// matters. Throws ConfigError for a variant without Capabilities::linear.
Variable differentiable_weights(Variant& variant, const Inputs& inputs, const Mask& mask = {},
                                const nn::Pass& pass = {});

/// The same in f64, without gradients.
Tensor weights(Variant& variant, const Inputs& inputs, const Mask& mask = {},
               const nn::Pass& pass = {});

/// Properties of a map (N, M), averaged over its rows. A row is divided by its sum first; rows that
/// sum to 0 are omitted.
struct MapShape {
  double entropy = 0;         // -Σ w ln w over positive weights, in nats; ln M is uniform
  double effective_keys = 0;  // e^entropy
  double largest = 0;         // the largest weight
  double self = 0;            // the weight of the token itself
  double first = 0;           // the weight of the first token
  double distance = 0;        // Σ |w| |i - j| / Σ |w|
  double negative = 0;        // the fraction of weights below 0
};
MapShape map_shape(const Tensor& map);

/// The mean of a map (N, M) over blocks, in at most `size` rows and columns: for display.
Tensor pooled_map(const Tensor& map, int64_t size);

}  // namespace longhand::attention::analysis
