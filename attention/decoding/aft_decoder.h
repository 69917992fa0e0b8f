// Decoding of the attention-free Transformer (variants/aft.cpp).
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// Returns the biases of query i for the keys from `first` to i.
using AftBiases = std::function<Tensor(int64_t i, int64_t first)>;

/// A decoder that keeps the keys and values of the last `window` tokens, whose biases depend on the
/// query, and sums over the tokens before them, which have no biases. A window of 0 means no
/// biases; a window above max_length, biases for all tokens.
std::unique_ptr<Decoder> make_aft_decoder(int64_t batch, const Config& config, int64_t window,
                                          AftBiases biases);

}  // namespace longhand::attention
