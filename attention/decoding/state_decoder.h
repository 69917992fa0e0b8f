// Decoders with a state of constant size: a scan, one token at a time.
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/variant.h"

namespace longhand::attention {

/// Returns the inputs of scan_step() for a token, given its q, k and v with all H heads, its x, and
/// its zero-based position. Undefined tensors of the token stay undefined.
using StepFunction = std::function<StepInputs(const Token& token, int64_t position)>;

/// Returns the result of a decoder, given its sums and the same token as the StepFunction.
using FinishFunction = std::function<Tensor(const Tensor& sums, const Token& token)>;

/// A decoder that keeps a ScanState, in f64 whatever the dtype of the tokens. With
/// Normalizer::query, sums are divided by their normalisers, subject to the guard.
std::unique_ptr<Decoder> make_state_decoder(int64_t batch, const Config& config, StepFunction step,
                                            Normalizer normalizer, const Guard& guard = {},
                                            FinishFunction finish = {});

}  // namespace longhand::attention
