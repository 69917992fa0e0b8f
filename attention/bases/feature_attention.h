// FeatureAttention: base of the variants whose weights are inner products of features.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "longhand/attention/features/feature_map.h"

namespace longhand::attention {

/// Attention with the features φ of a map: over all keys, causally, or token by token with a state
/// of constant size. out_i = sum_j w_ij v_j / sum_j w_ij, w_ij = φ(q_i)·φ(k_j).
///
/// If normalisers may be 0 or negative, or underflow, the buffer "nonpositive_normalizers" (2) i64
/// counts the normalisers below Guard::reliable() and all normalisers, over all training passes
/// with gradients. The metric of the same name is the ratio of the two.
class FeatureAttention : public Variant {
 public:
  FeatureAttention(const nn::Scope& scope, const Config& config,
                   const std::function<std::unique_ptr<FeatureMap>(const MapScope&)>& make);

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;
  Work work(int64_t queries, int64_t keys) const override;
  int64_t rank(int64_t tokens) const override;

  const FeatureMap& map() const { return *map_; }

 protected:
  /// Counts normalisers (B, N, H) of a training pass if counting is enabled: the first lengths[b]
  /// of each sequence (undefined: all), including those on other ranks.
  void count(const Tensor& normalisers, const Tensor& lengths, const nn::Pass& pass);
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override;
  void on_step() override { map_->on_step(); }
  std::map<std::string, double> own_metrics() const override;

 private:
  std::unique_ptr<FeatureMap> map_;
  std::optional<nn::Buffer> nonpositive_;  // (2) i64: normalisers that are not positive; all
};

}  // namespace longhand::attention
