// Ema: an exponential moving average of the weights.
#pragma once

#include "longhand/nn/module.h"
#include "longhand/train/gradients.h"

namespace longhand::train {

/// e <- d e + (1 - d) theta after each step, which starts at the weights themselves. Polyak &
/// Juditsky 1992 average all steps; to be near that at first, when there is little to remember,
/// d = min(decay, (1 + t)/(10 + t)) at step t.
class Ema {
 public:
  /// 0 < decay < 1; throws ConfigError otherwise.
  Ema(Parameters parameters, double decay);

  /// To be called after optimizer step t, counted from 1.
  void update(int64_t t);

  /// The averages by the names of the parameters. The tensors share memory with this.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists all that does not fit; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

  /// While one lives, the model holds the averages, and this the trained weights.
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
