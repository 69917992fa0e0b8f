// Ema: an exponential moving average of the weights.
#pragma once

#include "longhand/nn/module.h"
#include "longhand/train/step/gradients.h"

namespace longhand::train {

/// e <- e + (1 - d)(theta - e) after each step, starting from the weights themselves. Polyak &
/// Juditsky 1992 average all steps; to approximate that during the first steps,
/// d = min(decay, (1 + t)/(10 + t)) at step t.
///
/// Parameters are averaged, buffers are not: a model evaluated with averaged weights uses the
/// random features of its last redraw, while the average extends over several redraws. The weights
/// remain comparable because all redraws estimate the same kernel, but the averaged weights were
/// never trained with the features used to evaluate them. If that matters, compare with ema_decay =
/// 0, or do not redraw.
class Ema {
 public:
  /// Throws ConfigError unless 0 < decay < 1 and the parameters' dtype can represent the average:
  /// in f32, 1 - decay must be at least 9.5e-7.
  Ema(Parameters parameters, double decay);

  /// Call after optimizer step t, counted from 1.
  void update(int64_t t);

  /// Returns the averages by parameter name. The tensors share memory with this object.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists every mismatch, and then changes nothing.
  void load_state_dict(const nn::StateDict& state);

  /// While a Swap is alive, the model's parameters hold the averages and the Ema holds the trained
  /// weights. The model's buffers are unchanged.
  class Swap {
   public:
    explicit Swap(Ema& ema) : ema_(ema) { ema_.swap(); }
    ~Swap() { ema_.swap(); }
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    Ema& ema_;
  };

 private:
  void swap();

  Parameters parameters_;
  std::vector<Tensor> averages_;
  double decay_;
};

}  // namespace longhand::train
