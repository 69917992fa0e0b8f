#include "longhand/train/config/experiment.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/core/gemm.h"

namespace longhand::train {
namespace {

/// Makes a path absolute in the effective configuration and returns it; empty if not given.
std::string made_absolute(EffectiveValue& value) {
  auto* const path = std::get_if<std::string>(&value.value);
  if (path && !path->empty()) *path = absolute_path(*path);
  return path ? *path : "";
}

/// The options of [model] that describe its inputs and outputs; 0 if not given.
attention::TransformerConfig given_sizes(const Config& config) {
  attention::TransformerConfig sizes;
  OptionReader reader(config.model());
  sizes.describe_sizes(reader);
  return sizes;
}

/// model.max_length, or 0 if it is not given.
int64_t max_length_of(const Config& config) { return given_sizes(config).max_length; }

/// A placeholder for a task with unknown requirements: any model satisfies it, and its sequences
/// are as long as the model can read.
data::TaskInfo any_task(const Config& config) {
  const attention::TransformerConfig model = given_sizes(config);
  data::TaskInfo any{.vocabulary = 1,
                     .classes = 1,
                     .max_length = model.max_length > 0 ? model.max_length : int64_t{1} << 24};
  any.per_token = model.per_token;
  any.targets = data::target_kind(model.targets);
  if (any.targets != data::TargetKind::classes) any.classes = std::max<int64_t>(1, model.classes);
  // For tied embeddings, if only one of them is given: it equals the other.
  if (model.vocabulary > 0 && model.classes == 0) any.classes = model.vocabulary;
  if (model.classes > 0 && model.vocabulary == 0) any.vocabulary = model.classes;
  return any;
}

/// The default of data.seed: runs with different train.seed see the same data.
constexpr uint64_t seed_of_data = 0;

/// Checks all sections before data is read or generated, which may take much time and memory. Also
/// throws ConfigError if memory will not suffice, as far as known without the data.
data::Task checked_task(const Config& config, const data::Splits& splits) {
  const auto info = read_task_info(config);
  const Plan plan = read_plan(config, info ? *info : any_task(config));
  MemoryRequest request = memory_request(plan, nullptr);
  if (!info) {  // only the data and the given options of the model are known
    request.model.vocabulary = request.model.classes = request.model.max_length = 1;
    request.train.loading.batch_size = 1;
  }
  request.train.trainer.eval_batch_size = 1;  // at most the example count, known only from the data
  request.trains = request.saves = splits.train;
  if (!splits.train) request.data.examples = 0;
  check_memory(request);
  return read_task(config, splits);
}

}  // namespace

attention::TransformerConfig read_model(const Config& config, const data::TaskInfo* task,
                                        EffectiveSections* values) {
  const Options& model = config.model();
  const data::TaskInfo needs = task ? *task : data::TaskInfo{};
  for (const char* key : {"vocabulary", "classes", "per_token", "max_length"})
    check<ConfigError>(task || model.has(key), "model.", key,
                       " is missing: without a task it must be given");
  attention::TransformerConfig defaults;
  defaults.vocabulary = needs.vocabulary;
  defaults.classes = needs.classes;
  defaults.per_token = needs.per_token;
  defaults.targets = name_of(needs.targets);
  defaults.max_length = needs.max_length;
  defaults.causal = needs.causal;
  defaults.reconstruct = needs.from_last;
  auto read =
      attention::TransformerConfig::read(model, config.attention(), std::move(defaults), values);
  const auto at_least = [&](const char* key, int64_t size, int64_t needed, const char* what) {
    model.require(size >= needed, key, concat_message("the data has ", what, " ", needed));
  };
  at_least("vocabulary", read.vocabulary, needs.vocabulary, "tokens below");
  at_least("classes", read.classes, needs.classes, "classes below");
  at_least("max_length", read.max_length, needs.max_length, "sequences of up to");
  model.require(
      !task || read.per_token == needs.per_token, "per_token",
      concat_message("the data has one target per ", needs.per_token ? "token" : "sequence"));
  model.require(!task || read.targets == name_of(needs.targets), "targets",
                concat_message("the data has ", name_of(needs.targets), " (data.targets)"));
  model.require(!task || read.targets == "classes" || read.classes == needs.classes, "classes",
                concat_message("the data has ", needs.describe_targets()));
  model.require(read.causal || !needs.causal, "causal",
                "this task requires a causal model, because its targets are later tokens");
  model.require(read.reconstruct || !needs.from_last, "reconstruct",
                "this task requires it: tokens are reconstructed from the vector of the last one");
  EffectiveValues of_variants = read.check_attention();
  if (values) (*values)["attention"].merge(of_variants);
  return read;
}

std::optional<data::TaskInfo> read_task_info(const Config& config, EffectiveValues* values) {
  const auto info = data::check_task(config.data(), seed_of_data, max_length_of(config), values);
  if (values)
    if (const auto path = values->find("path"); path != values->end()) made_absolute(path->second);
  return info;
}

Plan read_plan(const Config& config, const data::TaskInfo& task) {
  Plan plan;
  EffectiveSections& values = plan.effective;
  plan.train = read_section<TrainSection>(config.train(), {}, &values["train"]);
  plan.train.init.from = made_absolute(values["train"]["init_from"]);
  plan.train.distill.from = made_absolute(values["train"]["distill_from"]);
  plan.optimizer.schedule.total_steps = plan.train.trainer.steps;
  plan.optimizer = read_section(config.optimizer(), plan.optimizer, &values["optimizer"]);
  read_task_info(config, &values["data"]);
  plan.model = read_model(config, &task, &values);
  config.train().require(
      plan.train.trainer.sequence_ranks == 1 || !plan.model.has_class_token(), "sequence_ranks",
      "a class token belongs to no part of a sequence: expected 1 with model.pooling = \"cls\"");
  config.train().require(
      !plan.train.trainer.shard_optimizer || plan.optimizer.optimizer.type != "muon",
      "shard_optimizer",
      "muon orthogonalises whole matrices: expected false with optimizer.type = "
      "\"muon\"");
  const TrainerOptions& options = plan.train.trainer;
  const auto only_classes = [&](bool ok, const char* key, const char* expected) {
    config.train().require(plan.model.targets == "classes" || ok, key,
                           concat_message("the targets are ", plan.model.targets, ": ", expected));
  };
  const bool has_accuracy = plan.model.targets != "numbers";
  only_classes(has_accuracy || options.best_metric == "loss", "best_metric", "expected \"loss\"");
  only_classes(has_accuracy || options.target_accuracy == 0, "target_accuracy",
               "numbers have no accuracy; expected 0");
  only_classes(options.label_smoothing == 0, "label_smoothing", "expected 0");
  only_classes(plan.train.distill.from.empty(), "distill_from",
               "teachers predict probabilities of classes; expected none");
  plan.data = data::task_memory(config.data(), seed_of_data, max_length_of(config));
  return plan;
}

void check_config(const Config& config) {
  const auto task = read_task_info(config);
  read_plan(config, task ? *task : any_task(config));
}

MemoryRequest memory_request(const Config& config) {
  const auto info = read_task_info(config);
  const Plan plan = read_plan(config, info ? *info : any_task(config));
  if ((!info || info->per_token) &&
      plan.data.bytes + 8 * plan.data.examples < machine_memory().bytes) {
    const data::Task task = read_task(config);
    return memory_request(read_plan(config, task.info), &task);
  }
  MemoryRequest request = memory_request(plan, nullptr);
  request.counted = 1;
  return request;
}

std::string effective_config(const Config& config, const data::TaskInfo* task,
                             std::vector<std::string>* ignored) {
  EffectiveSections values = read_plan(config, task ? *task : any_task(config)).effective;
  if (ignored) *ignored = config.ignored(values);
  if (!task) {
    const std::set<std::string> from_data = {"vocabulary", "classes",     "per_token", "max_length",
                                             "causal",     "reconstruct", "targets"};
    std::erase_if(values["model"], [&](const auto& option) {
      return !option.second.given && from_data.contains(option.first);
    });
    // Their defaults may depend on the length.
    std::erase_if(values["attention"], [](const auto& option) {
      return !option.second.given && option.first != "type";
    });
  }
  return to_toml(values);
}

uint64_t read_seed(const Config& config) {
  return read_options<TrainSection>(config.train()).trainer.step.seed;
}

data::Task read_task(const Config& config, const data::Splits& splits) {
  try {
    return data::make_task(config.data(), seed_of_data, splits, max_length_of(config));
  } catch (const DataError& error) {
    const Options::Given* const given = config.data().find("path");
    const auto* const path = given ? std::get_if<std::string>(&given->value) : nullptr;
    std::error_code ignored;
    // It may be an argument of longhand data check or predict.
    if (!path || given->where == "PATH" || given->where == "--data" ||
        std::filesystem::exists(*path, ignored))
      throw;
    throw DataError(
        concat_message(error.what(), "; set the location of the data with --set data.path=PATH"));
  }
}

LogitsFn logits_of(attention::Transformer& model) {
  return [&model](const data::Batch& batch, const nn::Pass& pass) {
    // If most targets are ignored, as in recall and copying, most rows of the head are skipped too.
    if (batch.per_token()) {
      const Tensor rows = counted_places(batch.targets);
      if (rows.numel() > 0 && 2 * rows.numel() <= batch.targets.numel())
        return Prediction{model.forward(batch.tokens, batch.lengths, pass, rows),
                          targets_at(batch.targets, rows)};
    }
    return Prediction{model.forward(batch.tokens, batch.lengths, pass), batch.targets};
  };
}

Experiment::Experiment(Config config_, const data::Splits& splits)
    : config(std::move(config_)),
      task(checked_task(config, splits)),
      plan(read_plan(config, task.info)),
      memory(check_memory(memory_request(plan, &task))),
      model(nn::root(DType::f32, options.step.seed), plan.model),
      optimizer(make_optimizer(plan.optimizer.optimizer, model.named_parameters())) {}

data::Loader Experiment::loader() const {
  return data::Loader(*task.train, plan.train.loading, Generator(options.step.seed).fork("loader"));
}

std::vector<std::string> advice(Experiment& e) {
  std::vector<std::string> out;
  if (const std::string text = blas_advice(); !text.empty()) out.push_back(text);
  if (const int64_t steps = e.options.steps; e.schedule.warmup_steps > steps)
    out.push_back(concat_message("optimizer.warmup_steps = ", e.schedule.warmup_steps,
                                 " is more than train.steps = ", steps,
                                 ": the learning rate ends at ", e.schedule.at(steps - 1),
                                 " and never reaches optimizer.lr = ", e.schedule.lr,
                                 "; reduce warmup_steps, or train longer"));
  for (int64_t layer = 0; layer < e.model.config().layers; ++layer) {
    const std::string text = e.model.kernel(layer).advice(e.task.info.max_length);
    if (!text.empty() && std::ranges::find(out, text) == out.end()) out.push_back(text);
  }
  return out;
}

}  // namespace longhand::train
