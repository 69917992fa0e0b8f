// FeatureAttention: base of the variants whose weights are inner products of features.
#pragma once

#include <optional>

#include "longhand/attention/ops/linear_attention.h"
#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

namespace longhand::attention {

/// Options for signed features, whose normalisers may be near 0.
struct GuardOptions {
  std::string guard = "none";
  double eps = 0;

  void describe(OptionVisitor& v);
};

/// Attention with the features φ that a derived class defines: over all keys, causally, or token by
/// token with a state of constant size. out_i = sum_j w_ij v_j / sum_j w_ij, w_ij = φ(q_i)·φ(k_j).
///
/// If features may make a normaliser 0 or negative, or underflow, the buffer "nonpositive_normalizers" (2)
/// i64 counts the normalisers below Guard::reliable() and all normalisers, over all training passes with
/// gradients. The metric of the same name is their quotient.
class FeatureAttention : public Variant {
 public:
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;
  Work work(int64_t queries, int64_t keys) const override;
  std::optional<int64_t> rank(int64_t tokens) const override;
  double sequence_bytes(int64_t batch, int64_t tokens, int ranks) const override;

  /// φ of queries (B, N, H, m) and keys (B, M, H, m). Features that are exponentials are best given
  /// as logarithms: factors that cancel in the quotient are then chosen so that nothing overflows.
  struct Features {
    Variable query, key;
    bool logarithms = false;
    /// (B, M, H, 1): log of a factor of all features of a key; only without `logarithms`.
    Variable key_log{};
    /// W (m, D) or (H, m, D): query and key hold x (B, ., H, D), and the logarithms are W x for
    /// queries and W x - half_norm |x|² for keys. Undefined: query and key hold the features.
    Tensor projection{};
    double half_norm = 0;
    /// With `projection`, not causal and without `logarithms`: the features are [cos W x, sin W x] or,
    /// with phases b, cos(W x + b), and those of keys times e^(-half_norm |x|²).
    bool waves = false;
    Tensor phases{};
    /// (B, N, H): g <= 0 of a scan, from gated(); only causal, without the fields above.
    Variable log_decay{};
  };
  /// The features of q (B, N, H, D) and k (B, M, H, D), whose first tokens are at `position`.
  /// Padding is zero, and its features are ignored.
  virtual Features features(const Variable& q, const Variable& k, int64_t position) const = 0;
  /// The features of keys times a gate, and the decay of earlier ones, for tokens x (B, N, H D); x is
  /// undefined unless Capabilities::uses_x. By default there is no gate.
  virtual Features gated(Features features, const Variable&) const { return features; }

  const Guard& guard() const { return guard_; }

 protected:
  using Variant::Variant;

  /// Sets m and the cost of computing the features of a token, in forward() and for gradients. To
  /// be called by a constructor.
  void set_work(int64_t features, const Work::Counts& forward, const Work::Counts& backward);
  /// Enables counting of normalisers below Guard::reliable(). To be called by a constructor.
  void count_nonpositive();
  /// Counts normalisers (B, N, H) of a training pass, the first lengths[b] of each sequence (undefined:
  /// all) and those of others, if counting is enabled.
  void count(const Tensor& normalisers, const Tensor& lengths, const nn::Pass& pass);
  /// Sets the guard for signed features and enables counting. To be called by a constructor. `unit`
  /// is what one key in the direction of the query adds to a normaliser, of features with a scale of
  /// their own or, without `has_scale`, of inputs of size 1.
  void set_guard(const GuardOptions& options, double unit, bool has_scale = true);

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override;
  std::map<std::string, double> own_metrics() const override;

 private:
  int64_t features_ = 0;
  Work::Counts token_forward_, token_backward_;
  Guard guard_;
  std::optional<nn::Buffer> nonpositive_;  // (2) i64: normalisers that are not positive; all
};

/// x_h W_hᵀ for each head, for x (B, N, H, D) and W (H, m, D): (B, N, H, m).
Variable linear_of_heads(const Variable& x, const Variable& W);

}  // namespace longhand::attention
