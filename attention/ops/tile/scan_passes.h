// The two passes of a scan, for the results and for the gradients, over blocks of one kind.
#pragma once

#include "longhand/attention/ops/tile/scan_rule.h"

namespace longhand::attention::tile {

/// Saved states of each head, (heads, ., size): those before blocks 0, every, 2 every, ... A scan
/// of a single block without an initial state has none.
struct KeptStates {
  Tensor states;
  int64_t every;

  KeptStates(const ScanRule& rule, int64_t every_, DType dtype)
      : states(Tensor::empty(
            {rule.heads(),
             rule.has_state(rule.blocks - 1) ? (rule.blocks + every_ - 1) / every_ : 0,
             rule.state_size()},
            dtype)),
        every(every_) {}
  template <class T>
  T* before(int64_t head, int64_t block_) {
    return row<T>(states, head, block_ / every);
  }
};

/// The passes for one kind of blocks and one dtype.
struct ScanPasses {
  /// Elements that a block keeps for the gradients.
  int64_t (*kept_size)(const ScanRule& rule);
  /// Computes the sums and, if they are defined, the final states (heads, size) and the log scales
  /// of the sums. The first of the kept states is the initial one.
  void (*forward)(const ScanRule& rule, ScanTensors& x, KeptStates& kept, Tensor& out,
                  Tensor& final_states, Tensor& log_scales);
  /// Computes all gradients; that of the initial state only if `dinitial` (heads, size) is defined.
  /// `final_states` are read only if their gradient is defined.
  void (*backward)(const ScanRule& rule, ScanTensors& x, KeptStates& kept, const Tensor& dout,
                   const Tensor& final_states, const Tensor& dfinal, ScanGradients& to,
                   Tensor& dinitial);
};

/// For HeadBlocks, and RowBlocks with HeadPairs and with ChannelPairs. Each is compiled on its own.
ScanPasses feature_passes(DType dtype);
ScanPasses head_passes(DType dtype);
ScanPasses channel_passes(DType dtype);

}  // namespace longhand::attention::tile
