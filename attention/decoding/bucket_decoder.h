// Decoding of attention within buckets of a locality-sensitive hash (variants/reformer.cpp).
#pragma once

#include <memory>

#include "longhand/attention/ops/hash_buckets.h"
#include "longhand/attention/variant.h"

namespace longhand::attention {

/// A decoder whose queries attend to the last `window` tokens of their bucket in each round. Keys
/// are the queries divided by sqrt(mean square + eps). Tokens are of `dtype`.
std::unique_ptr<Decoder> make_bucket_decoder(int64_t batch, const Config& config, const Hash& hash,
                                             int64_t window, double eps, DType dtype);

}  // namespace longhand::attention
