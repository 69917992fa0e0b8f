// Experiment: the data, model and optimizer that a configuration describes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/attention/model/transformer.h"
#include "longhand/train/config/config.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/config/sections.h"
#include "longhand/train/step/evaluation.h"

namespace longhand::train {

/// Returns the configuration of the model that [model] and [attention] describe, with all options
/// checked. model.vocabulary, model.classes and model.per_token describe its inputs and outputs;
/// their defaults, and those of model.max_length and model.causal, are what `task` requires. Throws
/// ConfigError for invalid options, and if `task` has more tokens, more classes, longer sequences or
/// other targets than the model. Without a task all of these must be given, as they are in an
/// effective configuration. The values read of both sections are added to `values`.
attention::TransformerConfig read_model(const Config& config, const data::TaskInfo* task,
                                        EffectiveSections* values = nullptr);

/// Reads all sections for data with the requirements of `task`. The paths data.path,
/// train.init_from and train.distill_from become absolute, so that the effective configuration means the
/// same in any folder. Throws ConfigError for invalid values and for options that no component declares,
/// naming the nearest declared one.
Plan read_plan(const Config& config, const data::TaskInfo& task);

/// What the task of [data] requires of a model, or nothing if that depends on the contents of files.
/// `values` is set to the values of [data].
std::optional<data::TaskInfo> read_task_info(const Config& config,
                                             EffectiveValues* values = nullptr);

/// Checks all sections without constructing data or model. Throws ConfigError as read_plan() does.
/// Requirements that depend on the contents of files are checked by Experiment only.
void check_config(const Config& config);

/// Returns every option with its value, as read by read_plan(), as a TOML file. Without a `task`,
/// defaults that depend on it are omitted. Throws ConfigError as read_plan() does. `ignored` is set
/// to Config::ignored().
std::string effective_config(const Config& config, const data::TaskInfo* task,
                             std::vector<std::string>* ignored = nullptr);

/// What a run of this configuration takes. Data with one target per token are made, to see how many
/// of their targets count, unless that takes more memory than there is. Throws ConfigError as
/// read_plan() does, and DataError for files that cannot be read.
MemoryRequest memory_request(const Config& config);

/// The seed of all random numbers but those of the data: train.seed.
uint64_t read_seed(const Config& config);

/// Makes the task that [data] describes. Texts are truncated to model.max_length if that is given,
/// unless an option of [data] sets another limit.
data::Task read_task(const Config& config, const data::Splits& splits = {});

/// Computes the logits of a model; only for the targets that count, if these are less than half.
LogitsFn logits_of(attention::Transformer& model);

/// Everything that a training run needs, constructed from its configuration.
struct Experiment {
  /// Checks all sections, then makes the required splits of the data, and the model. Throws
  /// ConfigError for invalid values and for options that no component declares, DataError for data
  /// that cannot be read.
  explicit Experiment(Config config, const data::Splits& splits = {});
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  Config config;
  data::Task task;
  Plan plan;  // its train.init and train.distill are not applied: see initialise() and Distillation
  TrainerOptions& options = plan.train.trainer;
  Schedule& schedule = plan.optimizer.schedule;
  MemoryEstimate memory;
  attention::Transformer model;
  std::unique_ptr<Optimizer> optimizer;

  /// The training batches.
  data::Loader loader() const;
};

/// Warnings, with what to do instead, about options that have no use in this combination: a warm-up
/// that is longer than training, and what Variant::advice() says; and blas_advice().
std::vector<std::string> advice(Experiment& experiment);

}  // namespace longhand::train
