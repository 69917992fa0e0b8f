#include "longhand/train/experiment.h"

#include <set>
#include <utility>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"

namespace longhand::train {
namespace {

bool belongs_to_variant(const std::string& name) {
  for (const char* const part : {".attention.kernel.", ".attention.query.", ".attention.key."})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

/// model.max_length, or 0 if it is not given.
int64_t max_length_of(const Config& config) {
  return config.model().has("max_length") ? config.model().get_int("max_length", 0, 1) : 0;
}

/// A placeholder for a task whose requirements are unknown: any model satisfies it, and its sequences
/// are as long as the model can read.
data::TaskInfo any_task(const Config& config) {
  const Options& model = config.model();
  const int64_t length = max_length_of(config);
  data::TaskInfo any{
      .vocabulary = 1, .classes = 1, .max_length = length > 0 ? length : int64_t{1} << 24};
  any.per_token = model.get_bool("per_token", false);
  // for tied embeddings
  if (model.has("vocabulary")) any.classes = model.get_int("vocabulary", 1, 1);
  if (model.has("classes")) any.vocabulary = model.get_int("classes", 1, 1);
  return any;
}

}  // namespace

void TrainSection::describe(OptionVisitor& v) {
  v.integer("seed", seed, {0}, "seed of all random numbers");
  loading.describe(v);
  trainer.describe(v, loading.batch_size);
  trainer.seed = static_cast<uint64_t>(seed);
}

void OptimizerSection::describe(OptionVisitor& v) {
  optimizer.describe(v);
  schedule.describe(v);
}

attention::TransformerConfig read_model(const Config& config, const data::TaskInfo* task) {
  const Options& model = config.model();
  const data::TaskInfo needs = task ? *task : data::TaskInfo{};
  for (const char* key : {"vocabulary", "classes", "per_token", "max_length"})
    check<ConfigError>(task || model.has(key), "model.", key,
                       " is missing: without a task it must be given");
  attention::TransformerConfig defaults;
  defaults.vocabulary = needs.vocabulary;
  defaults.classes = needs.classes;
  defaults.per_token = needs.per_token;
  defaults.max_length = needs.max_length;
  defaults.causal = needs.causal;
  auto read = attention::TransformerConfig::read(model, config.attention(), std::move(defaults));
  const auto at_least = [&](const char* key, int64_t size, int64_t needed, const char* what) {
    model.require(size >= needed, key, concat_message("the data has ", what, " ", needed));
  };
  at_least("vocabulary", read.vocabulary, needs.vocabulary, "tokens below");
  at_least("classes", read.classes, needs.classes, "classes below");
  at_least("max_length", read.max_length, needs.max_length, "sequences of up to");
  model.require(
      !task || read.per_token == needs.per_token, "per_token",
      concat_message("the data has one target a ", needs.per_token ? "token" : "sequence"));
  model.require(read.causal || !needs.causal, "causal",
                "this task requires a causal model, because its targets are later tokens");
  read.check_attention();
  return read;
}

std::optional<data::TaskInfo> read_task_info(const Config& config) {
  return data::check_task(config.data(), max_length_of(config));
}

Plan read_plan(const Config& config, const data::TaskInfo& task) {
  Plan plan;
  plan.train = read_section<TrainSection>(config.train());
  plan.optimizer.schedule.total_steps = plan.train.trainer.steps;
  plan.optimizer = read_section(config.optimizer(), plan.optimizer);
  read_task_info(config);
  plan.model = read_model(config, &task);
  return plan;
}

void check_config(const Config& config) {
  const Config unread = config.unread();
  const auto task = read_task_info(unread);
  read_plan(unread, task ? *task : any_task(unread));
}

std::string effective_config(const Config& given, const data::TaskInfo* task,
                             std::vector<std::string>* ignored) {
  const Config config = given.unread();
  std::set<std::string> unknown;
  read_plan(config, task ? *task : any_task(config));
  if (!task) {
    for (const char* key : {"vocabulary", "classes", "per_token", "max_length", "causal"})
      if (!config.model().has(key)) unknown.insert(std::string("model.") + key);
    // Defaults of these may depend on the length.
    for (const auto& [key, value] : config.attention().effective())
      if (key != "type" && !config.attention().has(key)) unknown.insert("attention." + key);
  }
  if (ignored) *ignored = config.ignored();
  return config.to_toml(unknown);
}

uint64_t read_seed(const Config& config) {
  return static_cast<uint64_t>(config.train().get_int("seed", 0, 0));
}

data::Task read_task(const Config& config, const data::Splits& splits) {
  return data::make_task(config.data(), read_seed(config), splits, max_length_of(config));
}

LogitsFn logits_of(attention::Transformer& model) {
  return [&model](const data::Batch& batch, const nn::Pass& pass) {
    // If most targets are ignored, as in recall and copying, most rows of the head are skipped too.
    if (batch.targets.rank() == 2) {
      const Tensor rows = counted_places(batch.targets);
      if (rows.numel() > 0 && 2 * rows.numel() <= batch.targets.numel())
        return Prediction{model.forward(batch.tokens, batch.lengths, pass, rows),
                          targets_at(batch.targets, rows)};
    }
    return Prediction{model.forward(batch.tokens, batch.lengths, pass), batch.targets};
  };
}

// Everything is checked before data is read or generated, which may take long.
Experiment::Experiment(Config config_, const data::Splits& splits)
    : Experiment(config_, (check_config(config_), read_task(config_, splits))) {}

Experiment::Experiment(Config config_, data::Task&& task_)
    : Experiment(config_, std::move(task_), read_plan(config_, task_.info)) {}

Experiment::Experiment(Config config_, data::Task&& task_, const Plan& plan)
    : config(std::move(config_)),
      seed(plan.train.trainer.seed),
      loading(plan.train.loading),
      options(plan.train.trainer),
      schedule(plan.optimizer.schedule),
      task(std::move(task_)),
      model(nn::root(DType::f32, seed), plan.model),
      optimizer(make_optimizer(plan.optimizer.optimizer, model.named_parameters())) {}

data::Loader Experiment::loader() const {
  return data::Loader(*task.train, loading, Generator(seed).fork("loader"));
}

Fresh load_weights(attention::Transformer& model, const Checkpoint& checkpoint,
                   bool other_attention) {
  nn::StateDict state = checkpoint.model;
  for (const auto& [name, average] : checkpoint.ema) state[name] = average;
  Fresh fresh;
  if (other_attention) {
    const nn::StateDict own = model.state_dict();
    for (const auto& [name, tensor] : own) {
      if (!belongs_to_variant(name)) continue;
      const auto found = state.find(name);
      if (found != state.end() && found->second.shape() == tensor.shape()) continue;
      fresh.initialised.push_back(name);
      state[name] = tensor.clone();
    }
    for (const auto& [name, tensor] : checkpoint.model) {
      if (!belongs_to_variant(name) || own.contains(name)) continue;
      fresh.unused.push_back(name);
      state.erase(name);
    }
  }
  model.load_state_dict(state);
  return fresh;
}

}  // namespace longhand::train
