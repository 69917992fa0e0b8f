#include "longhand/train/experiment.h"

#include <limits>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

/// A size that the model needs and that `task`, if there is one, asks for.
int64_t read_size(const Options& model, const std::string& key, int64_t asked, bool has_task,
                  const std::string& what) {
  check<ConfigError>(has_task || model.has(key), "model.", key, " is missing");
  const int64_t size = model.get_int(key, asked, 1, std::numeric_limits<int32_t>::max());
  model.require(size >= asked, key, concat_message("the data has ", what, " ", asked));
  return size;
}

data::LoaderConfig read_loading(const Options& section) {
  data::LoaderConfig loading;
  loading.batch_size =
      section.get_int("batch_size", loading.batch_size, 1, std::numeric_limits<int32_t>::max());
  loading.shuffle = section.get_bool("shuffle", loading.shuffle);
  loading.bucket = section.get_bool("bucket", loading.bucket);
  return loading;
}

TrainerOptions read_options(const Options& section, int64_t batch_size, uint64_t seed) {
  TrainerOptions options = TrainerOptions::read(section, batch_size, seed);
  // Before data is read or made, which may take its time.
  section.check_all_read();
  return options;
}

// What other variants may have more of, or none: there are variants without queries and keys.
bool belongs_to_variant(const std::string& name) {
  for (const char* const part : {".attention.kernel.", ".attention.query.", ".attention.key."})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

attention::TransformerConfig read_model(const Config& config, const data::TaskInfo* task) {
  const Options& model = config.model();
  const data::TaskInfo asked = task ? *task : data::TaskInfo{};
  const int64_t vocabulary = read_size(model, "vocabulary", asked.vocabulary, task, "tokens below");
  const int64_t classes = read_size(model, "classes", asked.classes, task, "classes below");
  check<ConfigError>(task || model.has("per_token"), "model.per_token is missing");
  const bool per_token = model.get_bool("per_token", asked.per_token);
  model.require(
      !task || per_token == asked.per_token, "per_token",
      concat_message("the data has one target a ", asked.per_token ? "token" : "sequence"));
  read_size(model, "max_length", asked.max_length, task, "sequences of up to");
  return attention::TransformerConfig::read(model, config.attention(), vocabulary, classes,
                                            per_token, asked.max_length, asked.causal);
}

uint64_t read_seed(const Config& config) {
  return static_cast<uint64_t>(config.train().get_int("seed", 0, 0));
}

data::Task read_task(const Config& config, const data::Splits& splits) {
  // Text can be cut to any length: to the model's, if nothing else is said.
  Options options = config.data();
  const std::string task = options.has("task") ? options.get_string("task", "") : "";
  const std::string key = task == "text_lm"               ? "length"
                          : task == "text_classification" ? "max_length"
                                                          : "";
  if (!key.empty() && config.model().has("max_length") && !options.has(key))
    options.set(key, config.model().get_int("max_length", 0, 1), "model.max_length");
  const int64_t seed = static_cast<int64_t>(read_seed(config));
  return data::make_task(options, static_cast<uint64_t>(options.get_int("seed", seed, 0)), splits);
}

LogitsFn logits_of(attention::Transformer& model) {
  return [&model](const data::Batch& batch, const nn::Pass& pass) {
    // Where most targets are ignored, as in recall and copying, so are most rows of the head.
    if (batch.targets.rank() == 2) {
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
      seed(read_seed(config)),
      loading(read_loading(config.train())),
      options(read_options(config.train(), loading.batch_size, seed)),
      schedule(Schedule::read(config.optimizer(), options.steps)),
      task(read_task(config, splits)),
      model(nn::root(DType::f32, seed), read_model(config, &task.info)) {
  optimizer = make_optimizer(config.optimizer(), model.named_parameters());
  config.check_all_read();
}

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
