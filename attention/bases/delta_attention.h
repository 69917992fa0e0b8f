// DeltaAttention: base of the variants that follow a delta rule.
#pragma once

#include <memory>
#include <optional>

#include "longhand/attention/memory.h"
#include "longhand/attention/ops/delta_scan.h"
#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {

/// Options that all delta rules share.
struct DeltaRuleOptions {
  bool silu = true, negative = false, norm = true;

  void describe(OptionVisitor& v);
  /// What all of them support; without gates.
  Capabilities capabilities() const;
  /// Parameters and memory without gates and decays.
  Memory memory(const Config& config, const Extent& e) const;
};

/// Causal attention by a delta rule with keys k̂ and queries q̂ of length 1, and strengths β = sigmoid(x
/// P) for each head, or up to 2:
///
///   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + β_i k̂_i (v_i - S'_iᵀ k̂_i)ᵀ
///   o_i = S_iᵀ q̂_i / sqrt(D),  then divided by its root mean square, then multiplied by a gate
///
/// for whole sequences, or token by token with a state of D x D numbers a head.
class DeltaAttention : public Variant {
 public:
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;
  Work work(int64_t queries, int64_t keys) const override;

  /// The operands of the scan, for sequences of any length: a decoder gives single tokens.
  DeltaInputs operands(const Inputs& in) const;
  /// The result for the reads o (B, N, H, D) of the state: norm and gate.
  Variable finished(const Variable& reads, const Variable& x) const;

 protected:
  DeltaAttention(const nn::Scope& scope, const Config& config, const DeltaRuleOptions& options);

  /// g (B, N, H) or (B, N, H, D) of the tokens x (B, N, H D); undefined: 0.
  virtual Variable log_decay(const Variable& x) const;
  /// What the normalised reads are multiplied by, (B, N, H D); undefined: nothing.
  virtual Variable gate(const Variable& x) const;

  /// Sets the cost of decays and gates of a token in all heads, in forward(); gradients cost twice
  /// as much. To be called by a constructor.
  void set_work(const Work::Counts& token);

  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override;

 private:
  DeltaRuleOptions options_;
  Work::Counts token_;
  nn::Linear beta_;
  std::optional<nn::Parameter> norm_;  // (D)
  Variable unit_, unit_scaled_;        // (D): D^(-1/2) and 1/D
};

}  // namespace longhand::attention
