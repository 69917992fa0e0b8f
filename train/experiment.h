// Experiment: what a configuration describes, made: data, model, optimizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/attention/model/transformer.h"
#include "longhand/data/dataset.h"
#include "longhand/data/loader.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/config.h"
#include "longhand/train/metrics.h"
#include "longhand/train/optimizer.h"
#include "longhand/train/schedule.h"
#include "longhand/train/trainer.h"

namespace longhand::train {

/// The model that [model] and [attention] describe, with all their options checked. model.vocabulary, model.classes and
/// model.per_token say what it reads and gives; their defaults, and those of model.max_length and
/// model.causal, are what `task` needs. Throws ConfigError for what makes no model, and for a model
/// that `task` does not fit: it has more tokens, classes or longer sequences, or other targets.
/// Without a task all of them must be given, as they are in an effective configuration.
attention::TransformerConfig read_model(const Config& config, const data::TaskInfo* task);

/// The section [train].
struct TrainSection {
  int64_t seed = 0;
  data::LoaderConfig loading;
  TrainerOptions trainer;

  void describe(OptionVisitor& v);
};

/// The section [optimizer].
struct OptimizerSection {
  OptimizerOptions optimizer;
  Schedule schedule;

  void describe(OptionVisitor& v);
};

/// What a configuration describes, before data and model are made.
struct Plan {
  TrainSection train;
  OptimizerSection optimizer;
  attention::TransformerConfig model;
};

/// Reads all sections for data that needs what `task` says. Throws ConfigError for what cannot be
/// used and for options that no component declares, naming the nearest that one does.
Plan read_plan(const Config& config, const data::TaskInfo& task);

/// What the task of [data] needs of a model, or nothing where that depends on the contents of files.
std::optional<data::TaskInfo> read_task_info(const Config& config);

/// Checks all sections without making data or model. Throws ConfigError as read_plan() does. Where
/// what the task needs depends on the contents of files, conditions on it are left for Experiment.
void check_config(const Config& config);

/// Every option with its value, read by read_plan(), in the form of a TOML file. With no `task`,
/// defaults that depend on it are left out. Throws ConfigError as read_plan() does.
/// `ignored` is set to Config::ignored() then.
std::string effective_config(const Config& config, const data::TaskInfo* task,
                             std::vector<std::string>* ignored = nullptr);

/// The seed of everything random: train.seed.
uint64_t read_seed(const Config& config);

/// The task that [data] describes. Texts are cut to model.max_length, where that is given and no
/// option of [data] says otherwise.
data::Task read_task(const Config& config, const data::Splits& splits = {});

/// The logits of a model, of the targets that count alone where these are less than half.
LogitsFn logits_of(attention::Transformer& model);

/// Everything that a training run needs, made from its configuration.
struct Experiment {
  /// Checks all sections, then makes the splits of the data that are used, and the model. Throws ConfigError for what cannot be used and
  /// for options that no component declares, DataError for data that cannot be read.
  explicit Experiment(Config config, const data::Splits& splits = {});
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  Config config;
  uint64_t seed;
  data::LoaderConfig loading;
  TrainerOptions options;
  Schedule schedule;
  data::Task task;
  attention::Transformer model;
  std::unique_ptr<Optimizer> optimizer;

  /// The batches to train on.
  data::Loader loader() const;

 private:
  Experiment(Config config, data::Task&& task);
  Experiment(Config config, data::Task&& task, const Plan& plan);
};

/// What load_weights() could not take from a checkpoint.
struct Fresh {
  std::vector<std::string> initialised;  // parameters and buffers of the model, left as they were
  std::vector<std::string> unused;       // tensors of the checkpoint
};

/// Copies the weights of a checkpoint into a model, the averaged ones where it has them. With
/// `other_attention`, what belongs to the attention variants alone may be missing, of another shape
/// or left over. Throws DataError for a checkpoint of another model; nothing is changed then.
Fresh load_weights(attention::Transformer& model, const Checkpoint& checkpoint,
                   bool other_attention = false);

}  // namespace longhand::train
