// FeatureMap: the features φ of attention with weights φ(q)·φ(k).
#pragma once

#include <functional>
#include <string>

#include "longhand/attention/ops/feature_formula.h"
#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

namespace longhand::attention {

/// Options for signed features, whose normalisers may be near 0.
struct GuardOptions {
  std::string guard = "none";
  double eps = 0;

  void describe(OptionVisitor& v);
  /// `unit` is the contribution to a normaliser of one key in the direction of the query, for
  /// features with a scale of their own or, without `has_scale`, for inputs of size 1.
  Guard of(double unit, bool has_scale = true) const;
};

/// What a variant's feature map is constructed with. `scope` names its parameters and buffers,
/// which belong to the variant. The configuration must outlive the map.
struct MapScope {
  std::function<nn::Scope(const std::string& name)> scope;
  const Config& config;
  DType dtype;
  Generator random;  // of the initialisation
};

class FeatureMap {
 public:
  virtual ~FeatureMap() = default;

  /// φ of queries (B, N, H, m) and keys (B, M, H, m), or the inputs from which the formula computes
  /// them. Exponential features are best given as logarithms: factors that cancel in the quotient
  /// are then chosen so that nothing overflows.
  struct Features {
    Variable query, key;
    /// No waves if causal.
    FeatureFormula formula{};
    /// (B, M, H, 1): log of a factor common to all features of a key; only without exponentials.
    Variable key_log{};
    /// (B, N, H): g <= 0 of a scan, set by gated(); only if causal, without the fields above.
    Variable log_decay{};
  };
  /// The features of q (B, N, H, D) and k (B, M, H, D), whose first tokens are at `position`.
  /// Padding is zero, and its features are ignored.
  virtual Features features(const Variable& q, const Variable& k, int64_t position) const = 0;
  /// Multiplies the features of keys by a gate and sets the decay of earlier keys, given tokens x
  /// (B, N, H D), undefined unless Capabilities::uses_x. By default there is no gate.
  virtual Features gated(Features features, const Variable&) const { return features; }
  /// Called after each optimizer step.
  virtual void on_step() {}

  int64_t count = 0;               // m
  Work::Counts forward, backward;  // per token, for the features and for their gradients
  bool computed_again = false;     // for gradients, if N x m elements are not kept
  Guard guard{};
  bool may_underflow = true;  // whether normalisers may be 0 or negative, or underflow
};

/// W x per head, for x (B, N, H, D) and W (m, D) or (H, m, D): (B, N, H, m).
Variable linear_of_heads(const Variable& x, const Variable& W);

}  // namespace longhand::attention
