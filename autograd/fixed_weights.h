// FixedWeights: caches constant weights in the order in which products read them.
#pragma once

#include <unordered_map>

#include "longhand/core/tensor.h"

namespace longhand {

/// Caches weights of linear layers, if they are parameters, in the order in which products read
/// them. Without it, linear() reorders a weight in every call, which takes longer than the product
/// if there are few rows: a decoder has one per sequence, and therefore keeps one of these. Takes
/// as much memory as the weights, which must not change while it exists.
class FixedWeights {
 public:
  /// While it exists, linear() on this thread uses `weights`; if nested, the innermost one is used.
  class Use {
   public:
    explicit Use(FixedWeights& weights);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    FixedWeights* before_;
  };

  /// Returns the object in use on this thread, or null.
  static FixedWeights* in_use();

  /// Returns reorder(weight), computed by the first call for this weight.
  template <class F>
  const Tensor& of(const Tensor& weight, const F& reorder) {
    Kept& kept = kept_[weight.address()];
    if (!(kept.weight.shape() == weight.shape() && kept.weight.strides() == weight.strides()))
      kept = {weight, reorder(weight)};
    return kept.factor;
  }

 private:
  struct Kept {
    Tensor weight, factor;  // `weight` keeps its memory from being reused
  };
  std::unordered_map<const void*, Kept> kept_;
};

}  // namespace longhand
