// FeatureAttention: base of the variants whose weights are inner products of features.
#pragma once

#include <optional>

#include "longhand/attention/ops/linear_attention.h"
#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

namespace longhand::attention {

/// Options of features with signs, whose normalisers may be near 0.
struct GuardOptions {
  std::string guard = "none";
  double eps = 0;

  void describe(OptionVisitor& v);
};

/// A derived class says what the features are; this attends with them, over all keys or causally,
/// or token by token with a state that does not grow. out_i = sum_j w_ij v_j / sum_j w_ij, w_ij =
/// φ(q_i)·φ(k_j).
///
/// Where features may make a normaliser 0 or negative, the buffer "nonpositive_normalizers" (2) i64
/// counts those and all normalisers, over all training passes of which gradients are taken. The
/// metric of that name is their quotient: the fraction that is not positive.
class FeatureAttention : public Variant {
 public:
  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;
  Work work(int64_t queries, int64_t keys) const override;
  std::optional<int64_t> rank(int64_t tokens) const override;

  /// φ of queries (B, N, H, m) and keys (B, M, H, m). As logarithms, they are stable for features
  /// that are exponentials: factors that cancel in the quotient are chosen so that nothing
  /// overflows.
  struct Features {
    Variable query, key;
    bool logarithms = false;
    Variable key_log{};  // (B, M, H, 1): of a factor of each key's features, if not logarithms
    /// W (m, D) or (H, m, D): the logarithms are W x, and of keys minus half_norm |x|², of the x
    /// (B, ., H, D) that stand in their place.
    Tensor projection{};
    double half_norm = 0;
  };
  /// Of q (B, N, H, D) and k (B, M, H, D), whose first tokens stand at `position`. Padding holds
  /// zeros, and its features do not matter.
  virtual Features features(const Variable& q, const Variable& k, int64_t position) const = 0;

  const Guard& guard() const { return guard_; }

 protected:
  using Variant::Variant;

  /// For a constructor: m, and what it takes to compute the features of a token, in forward() and
  /// for gradients.
  void set_work(int64_t features, const Work::Counts& forward, const Work::Counts& backward);
  /// For a constructor: counts normalisers that are not positive.
  void count_nonpositive();
  /// For a constructor of features with signs: the guard, and counts normalisers that are not
  /// positive. `unit` is what one key in the direction of the query adds to a normaliser.
  void set_guard(const GuardOptions& options, double unit);

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override;
  std::map<std::string, double> own_metrics() const override;

 private:
  int64_t features_ = 0;
  Work::Counts token_forward_, token_backward_;
  Guard guard_;
  std::optional<nn::Buffer> nonpositive_;  // (2) i64: normalisers that are not positive, and all
};

/// x_h W_hᵀ of each head, for x (B, N, H, D) and W (H, m, D): (B, N, H, m).
Variable linear_of_heads(const Variable& x, const Variable& W);

}  // namespace longhand::attention
