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

/// Returns the model configuration that [model] and [attention] describe, with all options checked.
/// model.vocabulary, model.classes and model.per_token describe the inputs and outputs; their
/// defaults, and those of model.max_length and model.causal, are what `task` requires. Throws
/// ConfigError for invalid options, and if `task` has more tokens, more classes, longer sequences
/// or other targets than the model. Without a task, all of these must be given, as in an effective
/// configuration. Adds the values read from both sections to `values`.
attention::TransformerConfig read_model(const Config& config, const data::TaskInfo* task,
                                        EffectiveSections* values = nullptr);

/// Reads all sections for data with the requirements of `task`. The paths data.path,
/// train.init_from and train.distill_from become absolute, so that the effective configuration is
/// independent of the working directory. Throws ConfigError for invalid values and for options that
/// no component declares, naming the nearest declared one.
Plan read_plan(const Config& config, const data::TaskInfo& task);

/// Returns what the task of [data] requires of a model, or nothing if that depends on the contents
/// of files. Sets `values` to the values of [data].
std::optional<data::TaskInfo> read_task_info(const Config& config,
                                             EffectiveValues* values = nullptr);

/// Checks all sections without constructing data or model. Throws ConfigError as read_plan() does.
/// Only Experiment checks requirements that depend on the contents of files.
void check_config(const Config& config);

/// Returns every option with its value, as read by read_plan(), as a TOML file. Without a `task`,
/// omits defaults that depend on it. Throws ConfigError as read_plan() does. Sets `ignored` to
/// Config::ignored().
std::string effective_config(const Config& config, const data::TaskInfo* task,
                             std::vector<std::string>* ignored = nullptr);

/// Returns what a run with this configuration needs. Data with one target per token is generated to
/// count its targets, unless that exceeds the available memory. Throws ConfigError as read_plan()
/// does, and DataError for files that cannot be read.
MemoryRequest memory_request(const Config& config);

/// Returns the seed of all random numbers except the data's: train.seed.
uint64_t read_seed(const Config& config);

/// Makes the task that [data] describes. Texts are truncated to model.max_length if that is given,
/// unless an option of [data] sets another limit.
data::Task read_task(const Config& config, const data::Splits& splits = {});

/// Computes a model's logits; only for the targets that count, if they are less than half.
LogitsFn logits_of(attention::Transformer& model);

/// Everything that a training run needs, constructed from its configuration.
struct Experiment {
  /// Checks all sections, then makes the required data splits and the model. Throws ConfigError for
  /// invalid values and for options that no component declares, DataError for data that cannot be
  /// read.
  explicit Experiment(Config config, const data::Splits& splits = {});
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  Config config;
  data::Task task;
  Plan plan;  // train.init and train.distill are not applied: see initialise() and Distillation
  TrainerOptions& options = plan.train.trainer;
  Schedule& schedule = plan.optimizer.schedule;
  MemoryEstimate memory;
  attention::Transformer model;
  std::unique_ptr<Optimizer> optimizer;

  /// The training batches.
  data::Loader loader() const;
};

/// Returns warnings, with remedies, about options that are of no use in this combination: a warm-up
/// longer than training, Variant::advice(), and blas_advice().
std::vector<std::string> advice(Experiment& experiment);

}  // namespace longhand::train
