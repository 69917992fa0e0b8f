// The state of a generator as a tensor, so that variants can keep it in checkpoints.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/nn/module.h"

namespace longhand::attention {

/// The state of a generator, (2) i64.
inline Tensor state_tensor(const Generator& generator) {
  const Generator::State state = generator.state();
  return Tensor::from(
      std::vector<int64_t>{static_cast<int64_t>(state.key), static_cast<int64_t>(state.stream)},
      {2});
}

/// Returns the generator with this state.
inline Generator generator_of(const Tensor& state) {
  const int64_t* const s = state.data<int64_t>();
  return Generator::from_state({static_cast<uint64_t>(s[0]), static_cast<uint64_t>(s[1])});
}

/// When random numbers are resampled: every `interval` optimizer steps; 0: never. The state of
/// their generator and the counts of redraws and steps are buffers, so that a run resumed from a
/// checkpoint makes the same draws.
class Redraws {
 public:
  Redraws(const std::function<nn::Scope(const std::string& name)>& scope,
          const Generator& generator, int64_t interval)
      : interval_(interval),
        random_state_(scope("random_state"), state_tensor(generator)),
        redraws_(scope("redraws"), Tensor::zeros({}, DType::i64)),
        steps_(scope("steps"), Tensor::zeros({}, DType::i64)) {}

  /// The generator of the current draw.
  Generator generator() const {
    const int64_t redraw = *redraws_.value().data<int64_t>();
    return generator_of(random_state_.value()).fork(static_cast<uint64_t>(redraw));
  }
  /// Must be called after each optimizer step. Returns whether a new draw begins.
  bool step() {
    const int64_t step = ++*steps_.mutable_value().data<int64_t>();
    if (interval_ == 0 || step % interval_ != 0) return false;
    ++*redraws_.mutable_value().data<int64_t>();
    return true;
  }

 private:
  int64_t interval_;
  nn::Buffer random_state_, redraws_, steps_;  // (2) i64; i64, scalars
};

}  // namespace longhand::attention
