// Short convolutions: a filter of a few tokens for each channel.
#pragma once

#include "longhand/autograd/ops.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// The state of a causal convolution between tokens: its last width - 1 inputs.
class ConvState {
 public:
  /// The next row of depthwise_conv1d(x, weight, {.causal = true}), (B, C), for the next row of x,
  /// (B, C), and a weight (C, width). Throws ShapeError if shapes do not match each other or those
  /// of earlier rows.
  Tensor step(const Tensor& x, const Tensor& weight);
  int64_t bytes() const { return recent_.bytes(); }

 private:
  Tensor recent_;         // (B, width - 1, C), a ring buffer: row t is at t mod (width - 1)
  int64_t position_ = 0;  // rows so far
};

/// depthwise_conv1d() for the tokens of a pass, x (B, N, C); filters reach tokens that others hold.
Variable conv_of_pass(const Variable& x, const Variable& weight,
                      const DepthwiseConvOptions& options, const Pass& pass);

/// silu(depthwise_conv1d(x, weight)), without bias, which Based, Mamba and others place after the
/// projections of queries, keys and values. Causal models see width - 1 earlier tokens; in others
/// the filter is centred and sees width / 2 earlier ones.
class ShortConv : public Module {
 public:
  /// weight (channels, width) is initialised from U(-b, b) with b = width^(-1/2).
  ShortConv(const Scope& scope, int64_t channels, int64_t width, bool causal);
  /// x (B, N, channels). With lengths (B) i32, padding is not read, and the result is 0 there.
  Variable forward(const Variable& x, const Tensor& lengths, const Pass& pass = {}) const;
  /// The row of forward() for the next token x (B, channels) of a causal model.
  Tensor step(const Tensor& x, ConvState& state) const;

  Parameter weight;

 private:
  bool causal_;
};

}  // namespace longhand::nn
