// Schedule: the learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "longhand/core/schema.h"

namespace longhand::train {

/// t is the step, from 0; w is warmup_steps; T is total_steps. All but one_cycle begin with a
/// linear warm-up, lr (t+1)/w for t < w. Then, with p = (t-w)/(T-w) from 0 up to 1:
///
///   constant       lr
///   linear         final_lr + (lr - final_lr) (1 - p)
///   cosine         final_lr + (lr - final_lr) (1 + cos pi p)/2    Loshchilov & Hutter 2017 (arXiv
///                                                                 1608.03983), eq. 5
///   inverse_sqrt   lr sqrt(max(w,1) / (t+1))                      Vaswani et al. 2017 (arXiv
///                                                                 1706.03762), eq. 3
///   one_cycle      from lr/25 at t = 0 up to lr at t = w-1, down to lr/25/10^4 at t = T-1, both
///                  linearly: Smith & Topin 2018 (arXiv 1708.07120), as PyTorch's OneCycleLR with
///                  pct_start = w/T and anneal_strategy "linear"; momentum is not cycled
struct Schedule {
  enum class Kind { constant, linear, cosine, inverse_sqrt, one_cycle };

  Kind kind = Kind::constant;
  double lr = 1e-3;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double final_lr = 0;

  /// Returns the learning rate at step t, counted from 0; after total_steps, the last value.
  double at(int64_t t) const;

  /// Declares schedule, lr, warmup_steps and final_lr. total_steps must already be set: it belongs
  /// to the section [train].
  void describe(OptionVisitor& v);
};

}  // namespace longhand::train
