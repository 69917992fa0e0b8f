// Decoders of constant memory: a scan, one token at a time.
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/ops/scan.h"
#include "longhand/attention/variant.h"

namespace longhand::attention {

/// What a token adds to the state and asks of it, given its q, k and v with all of H heads, its x,
/// and its number, from 0. What is undefined of it stays so.
using StepFunction = std::function<StepInputs(const Token& token, int64_t position)>;

/// A decoder that keeps a ScanState. With Normalizer::query sums are divided by their normalisers,
/// as the guard says.
std::unique_ptr<Decoder> make_state_decoder(int64_t batch, const Config& config, StepFunction step,
                                            Normalizer normalizer, const Guard& guard = {});

}  // namespace longhand::attention
