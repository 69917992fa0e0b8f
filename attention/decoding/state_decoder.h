// Decoders of constant memory: a scan, one token at a time.
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/ops/scan.h"
#include "longhand/attention/variant.h"

namespace longhand::attention {

/// What a token adds to the state and asks of it, for its q, k, v (B, H, D), all of H heads, and
/// its number, from 0. q and k may be undefined, as in Decoder::step().
using StepFunction =
    std::function<StepInputs(const Tensor& q, const Tensor& k, const Tensor& v, int64_t position)>;

/// A decoder that keeps a ScanState. With Normalizer::query sums are divided by their normalisers,
/// as the guard says.
std::unique_ptr<Decoder> make_state_decoder(int64_t batch, const Config& config, StepFunction step,
                                            Normalizer normalizer, const Guard& guard = {});

}  // namespace longhand::attention
