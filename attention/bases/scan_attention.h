// ScanAttention: base of the variants with a decaying state: a scan, then a norm and a gate.
#pragma once

#include <memory>
#include <optional>

#include "longhand/attention/ops/scan.h"
#include "longhand/attention/variant.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {

/// The operations applied to the sums of a scan.
struct ScanOutput {
  bool norm = true;  // divide by the root mean square
  bool gate = true;  // multiply by silu(x Wᵀ), W (H D, H D)
  /// Whether the norm is over all H D channels of a token, after the gate, instead of over the D
  /// channels of each head, before it.
  bool norm_last = false;
  bool weight = false;  // the norm has a learned weight, one per channel
};

/// Causal attention o_i = S_iᵀ q_i / sqrt(D) with S_i = e^{g_i} S_(i-1) + k_i v_iᵀ, for operands
/// that a derived class computes from q, k, v and the tokens x: for whole sequences, or token by
/// token with a state of D x D elements per head.
class ScanAttention : public Variant {
 public:
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;
  Work work(int64_t queries, int64_t keys) const override;

  /// The operands of the scan, with log_decay (B, N, H) or (B, N, H, D), for sequences of any
  /// length: a decoder passes single tokens.
  virtual ScanInputs operands(const Inputs& in) const = 0;
  /// operands() of sequences with the given lengths, such that padding leaves the state unchanged:
  /// tokens, queries, keys and values are 0 there. Undefined lengths: no padding.
  virtual ScanInputs padded_operands(const Inputs& in, const Tensor& lengths) const;
  /// The term added to the sums S_iᵀ q_i, (B, N, H, D): sqrt(D) s v_i; undefined without a skip_.
  Variable direct(const Inputs& in) const;
  /// The result for the sums (B, N, H, D): adds direct(), then applies 1/sqrt(D), norm and gate.
  Variable finished(const Variable& sums, const Inputs& in) const;

 protected:
  ScanAttention(const nn::Scope& scope, const Config& config, const ScanOutput& output);

  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override;

  /// The cost of the sums of one head, with `bytes` per element; by default that of a scan.
  virtual Work sums_work(double tokens, double dim, double bytes) const;

  /// Cost of the operands in forward(), per token over all heads; gradients take twice the flops.
  Work::Counts token_;
  std::optional<nn::Parameter> skip_;  // s (H), for derived classes

 private:
  ScanOutput output_;
  std::optional<nn::Linear> gate_;
  std::optional<nn::Parameter> weight_;  // (D) or (H D)
};

}  // namespace longhand::attention
