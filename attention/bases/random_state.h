// The state of a generator as a tensor, so that variants can keep it in checkpoints.
#pragma once

#include <vector>

#include "longhand/core/random.h"

namespace longhand::attention {

/// The state of a generator, (2) i64.
inline Tensor state_tensor(const Generator& generator) {
  const Generator::State state = generator.state();
  return Tensor::from(
      std::vector<int64_t>{static_cast<int64_t>(state.key), static_cast<int64_t>(state.stream)},
      {2});
}

/// The generator with that state.
inline Generator generator_of(const Tensor& state) {
  const int64_t* const s = state.data<int64_t>();
  return Generator::from_state({static_cast<uint64_t>(s[0]), static_cast<uint64_t>(s[1])});
}

}  // namespace longhand::attention
