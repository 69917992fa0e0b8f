// Ema: an exponential moving average of the weights.
#pragma once

#include "longhand/nn/module.h"
#include "longhand/train/gradients.h"

namespace longhand::train {

/// e <- e + (1 - d)(theta - e) after each step, which starts at the weights themselves. Polyak &
/// Juditsky 1992 average all steps; to be near that at first, when there is little to remember,
/// d = min(decay, (1 + t)/(10 + t)) at step t.
///
/// Parameters are averaged, buffers are not: a model that is evaluated with averaged weights has
/// the random features of its last redraw, while the average goes on across redraws. The weights
/// are comparable, since features of every redraw estimate the same kernel, but the average was not
/// trained with the features that evaluate it. Where that matters, compare with ema_decay = 0, or
/// do not redraw.
class Ema {
 public:
  /// 0 < decay < 1, and no nearer to 1 than the parameters' dtype can average with: 1 - decay is at
  /// least 9.5e-7 in f32. Throws ConfigError otherwise.
  Ema(Parameters parameters, double decay);

  /// To be called after optimizer step t, counted from 1.
  void update(int64_t t);

  /// The averages by the names of the parameters. The tensors share memory with this.
  nn::StateDict state_dict() const;
  /// Throws one Error that lists all that does not fit; nothing is changed then.
  void load_state_dict(const nn::StateDict& state);

  /// While one lives, the model's parameters hold the averages, and this the trained weights; the
  /// model's buffers stay as they are.
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
