// The options of [train] that name other runs: the checkpoint to start from, and the teacher.
#pragma once

#include <string>

#include "longhand/core/schema.h"

namespace longhand::train {

/// The options of [train] that name a checkpoint to start from.
struct InitOptions {
  std::string from;  // a run directory or a checkpoint file; empty: none
  std::string checkpoint = "best";

  void describe(OptionVisitor& v);
};

/// The options of [train] that name a teacher and weight the terms of the loss.
struct DistillOptions {
  std::string from;  // a run directory or a checkpoint file; empty: no teacher
  std::string checkpoint = "best";
  double logits = 0.5;  // alpha
  double temperature = 2;
  double outputs = 0, weights = 0;

  /// `recompute` is train.recompute, read before.
  void describe(OptionVisitor& v, bool recompute);
};

}  // namespace longhand::train
