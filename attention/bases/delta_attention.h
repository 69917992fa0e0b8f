// DeltaAttention: base of the variants that follow a delta rule.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "longhand/attention/bases/head_decay.h"
#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/ops/delta_scan.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {

/// The option `negative` of all delta rules. Grazzi et al. 2024 (arXiv 2411.12537).
void describe_negative(OptionVisitor& v, bool& negative);

/// Options of delta rules with unit keys.
struct DeltaRuleOptions {
  bool silu = true, negative = false, norm = true;

  void describe(OptionVisitor& v);
  Capabilities capabilities() const { return recurrence_capabilities(!norm); }
};

/// The same options, with a gate.
struct GatedDeltaOptions : DeltaRuleOptions {
  bool gate = true;

  void describe(OptionVisitor& v);
};

/// The same options, with rank-r maps from tokens to decays and gates.
struct ChannelDeltaOptions : GatedDeltaOptions {
  int64_t rank = 1;

  static ChannelDeltaOptions defaults(const Config& config);
  void describe(OptionVisitor& v);
};

/// Causal attention by a delta rule, for whole sequences or token by token, with a state of D x D
/// elements per head. Derived classes define the operands and the output computed from the reads.
class DeltaAttention : public Variant {
 public:
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;

  /// The operands of the scan, for N tokens with possibly several steps each; in a decoder N = 1.
  virtual DeltaInputs operands(const Inputs& in) const = 0;
  /// operands() of sequences with the given lengths, such that padding leaves the state unchanged:
  /// tokens, queries, keys and values are 0 there. Undefined lengths: no padding.
  DeltaInputs padded_operands(const Inputs& in, const Tensor& lengths) const;
  /// The result for the reads o (B, N, H, D) of the state, made by the scan of operands `of`.
  virtual Variable finished(const Variable& reads, const DeltaInputs& of,
                            const Inputs& in) const = 0;
  /// State of a decoder: f64 matrices, undefined before the first token. A delta rule has one, S.
  using State = std::array<Tensor, 2>;
  /// Advances the state by one step, whose operands have no axis N, and returns the reads
  /// (B, H, D). By default, calls delta_step().
  virtual Tensor advance(State& state, const DeltaOperands<Tensor>& of) const;

 protected:
  using Variant::Variant;
  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override;
};

/// How rules with unit keys differ: the number of steps per token, and whether β is computed here
/// or replaced by write strengths of a derived class.
struct DeltaRuleKind {
  int64_t steps = 1;
  bool beta = true;
};

/// The delta rule with keys k̂ and queries q̂ of unit norm, and write strengths β = sigmoid(x P) per
/// head, optionally up to 2:
///
///   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + β_i k̂_i (v_i - S'_iᵀ k̂_i)ᵀ
///   o_i = S_iᵀ q̂_i / sqrt(D),  then divided by its root mean square, then multiplied by a gate
class UnitDeltaAttention : public DeltaAttention {
 public:
  UnitDeltaAttention(const nn::Scope& scope, const Config& config, const DeltaRuleOptions& options,
                     const DeltaRuleKind& kind = {});

  Work work(int64_t queries, int64_t keys) const override;
  DeltaInputs operands(const Inputs& in) const override;
  Variable finished(const Variable& reads, const DeltaInputs& of, const Inputs& in) const override;

 protected:
  /// g (B, N, H) or (B, N, H, D) of the tokens x (B, N, H D); undefined: 0.
  virtual Variable log_decay(const Variable& x) const;
  /// The gate of the normalised reads: its logits (B, N, H D), undefined if there is no gate, and
  /// the function that is applied to them.
  struct Gate {
    Variable logits;
    GateFunction function = GateFunction::silu;
  };
  /// By default, the gate of add_gate(), or none.
  virtual Gate gate(const Variable& x) const;
  /// Adds the gate silu(x Wᵀ), whose W is the parameter "gate". Must be called in a constructor.
  void add_gate();

  /// k̂ for keys k (B, N, H, D).
  Variable unit_keys(const Variable& k) const;
  /// β for its logits.
  Variable strengths(const Variable& logits) const;

  /// The cost of the rule for one head; by default that of delta_scan().
  virtual Work rule_work(int64_t tokens) const;
  /// Adds the cost in forward(), per token over all heads, of what derived classes compute;
  /// gradients cost twice as much. Must be called in a constructor.
  void add_work(const Work::Counts& token);

 private:
  // Scales each row of x to unit norm, then by D^(1/2) and a factor (D).
  Variable unit(const Variable& x, const Variable& factor) const;

  DeltaRuleOptions options_;
  int64_t steps_;
  Work::Counts token_;
  std::optional<nn::Linear> beta_, gate_;  // P, W
  std::optional<nn::Parameter> norm_;      // (D)
  Variable unit_, unit_scaled_;            // (D): D^(-1/2) and 1/D
};

/// The rule with a state that decays by one factor per head, and with the gate silu(x Wᵀ).
class GatedDeltaAttention : public UnitDeltaAttention {
 public:
  GatedDeltaAttention(const nn::Scope& scope, const Config& config,
                      const GatedDeltaOptions& options, int64_t steps = 1);

 private:
  Variable log_decay(const Variable& x) const override { return decay_(x); }

  HeadDecay decay_;
};

/// The rule with a state that decays by one factor per channel,
/// g_i = -e^A softplus(x_i D_g U_g + b), and with the gate sigmoid(x_i D_o U_o + c).
class ChannelDeltaAttention : public UnitDeltaAttention {
 public:
  ChannelDeltaAttention(const nn::Scope& scope, const Config& config,
                        const ChannelDeltaOptions& options, const DeltaRuleKind& kind = {});

 private:
  Variable log_decay(const Variable& x) const override;
  Gate gate(const Variable& x) const override;

  nn::Linear decay_down_, decay_up_;    // D_g, U_g
  nn::Parameter step_bias_, log_rate_;  // b (H, D), A (H, 1)
  std::optional<nn::Linear> gate_down_, gate_up_;
};

/// Added to the squared norm of a vector before dividing by the norm, so that 0 stays 0.
inline constexpr double eps_of_length = 1e-6;

/// x Dᵀ Uᵀ + bias for x (B, N, in), D (r, in), U (out, r) and a bias of `out` elements, or
/// undefined: (B, N, out). Multiplies the two maps first if that takes fewer products.
Variable low_rank_map(const Variable& x, const Variable& down, const Variable& up,
                      const Variable& bias = {});
/// The flops of low_rank_map() per token of many, from `width` channels to `width` channels.
double low_rank_flops(double width, double rank);

/// The cost of a delta_scan() of one head, without the cost of its operands, for tokens of `steps`
/// steps each; `write`: with DeltaInputs::write.
Work delta_work(int64_t tokens, int64_t dim, DType dtype, bool write = false, int64_t steps = 1);

}  // namespace longhand::attention
