// Sections: the sections of a configuration as structs, and the plan they form.
#pragma once

#include <cstdint>
#include <string>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/core/schema.h"
#include "longhand/data/dataset.h"
#include "longhand/data/loader.h"
#include "longhand/train/step/optimizers.h"
#include "longhand/train/step/options.h"
#include "longhand/train/step/schedule.h"

namespace longhand::train {

/// The options of [train] for starting from a checkpoint.
struct InitOptions {
  std::string from;  // a run directory or a checkpoint file; empty: none
  std::string checkpoint = "best";

  void describe(OptionVisitor& v);
};

/// The options of [train] that name a teacher and weight the loss terms.
struct DistillOptions {
  std::string from;  // a run directory or a checkpoint file; empty: no teacher
  std::string checkpoint = "best";
  double logits = 0.5;  // alpha
  double temperature = 2;
  double outputs = 0, weights = 0;

  /// `recompute` is train.recompute, already read.
  void describe(OptionVisitor& v, bool recompute);
};

/// The section [train].
struct TrainSection {
  data::LoaderConfig loading{};
  TrainerOptions trainer{};
  InitOptions init{};
  DistillOptions distill{};
  bool tensorboard = false;  // whether Run writes TensorBoard events
  double memory_limit = 0;   // GiB; 0: the machine's memory

  void describe(OptionVisitor& v);
};

/// The section [optimizer].
struct OptimizerSection {
  OptimizerOptions optimizer{};
  Schedule schedule{};

  void describe(OptionVisitor& v);
};

/// All sections of a configuration, read before data and model are constructed.
struct Plan {
  TrainSection train{};
  OptimizerSection optimizer{};
  attention::TransformerConfig model{};
  data::DataMemory data{};  // as far as known without them
  /// Every applicable option with its value: the effective configuration.
  EffectiveSections effective{};
};

}  // namespace longhand::train
