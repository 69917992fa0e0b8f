// Decoding of the attention-free Transformer (variants/aft.cpp).
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// The biases of query i, from that of key `first` on to that of i.
using AftBiases = std::function<Tensor(int64_t i, int64_t first)>;

/// A decoder that gives biases to the last `window` tokens, 0: to none, and none to those before them, of
/// which it keeps sums. Larger than max_length: to all.
std::unique_ptr<Decoder> make_aft_decoder(int64_t batch, const Config& config, int64_t window,
                                          AftBiases biases);

}  // namespace longhand::attention
