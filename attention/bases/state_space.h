// StateSpaceAttention: base of the variants that sum over the past in the way of Mamba-2.
#pragma once

#include "longhand/attention/bases/head_decay.h"
#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/bases/scan_attention.h"

namespace longhand::attention {

struct StateSpaceOptions {
  bool skip = true, norm = true, gate = true;

  void describe(OptionVisitor& v);
  ScanOutput output() const {
    return {.norm = norm, .gate = gate, .norm_last = true, .weight = true};
  }
  Capabilities capabilities() const { return recurrence_capabilities(!norm); }
};

/// The state space dual: S_i = e^{Δ_i a} S_(i-1) + k_i (Δ_i v_i)ᵀ, with s v_i added to the result,
/// for steps Δ computed from the tokens; variants/mamba2.cpp has the formulas.
class StateSpaceAttention : public ScanAttention {
 public:
  StateSpaceAttention(const nn::Scope& scope, const Config& config,
                      const StateSpaceOptions& options);

  ScanInputs operands(const Inputs& in) const override;

 private:
  HeadDecay decay_;
};

}  // namespace longhand::attention
