#include "longhand/train/transfer/weights.h"

#include <charconv>

#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"

namespace longhand::train {
namespace {

/// The part of a checkpoint of this name: see export_part().
nn::StateDict part_of(const Checkpoint& checkpoint, const std::string& part) {
  if (part == "weights") return checkpoint.weights();
  if (part == "model") return checkpoint.model;
  if (part == "optimizer") return checkpoint.optimizer;
  if (part == "ema") return checkpoint.ema;
  throw ConfigError("--part " + part + ": expected one of weights, model, optimizer, ema");
}

/// A metadata entry that is an integer of at least 0; 0 for anything else.
int64_t count_in(const TensorFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return 0;
  int64_t value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : 0;
}

}  // namespace

TensorFile export_part(const Checkpoint& checkpoint, const std::string& part) {
  TensorFile out{.tensors = part_of(checkpoint, part)};
  check<ConfigError>(!out.tensors.empty(), "--part ", part, ": the checkpoint has no tensors there",
                     part == "ema" ? ", because it was trained without train.ema_decay" : "");
  out.metadata = {{"longhand", checkpoint.version},
                  {"part", part},
                  {"step", std::to_string(checkpoint.training.step)},
                  {"seed", std::to_string(checkpoint.training.seed)},
                  {"config", checkpoint.config}};
  return out;
}

Imported import_weights(const TensorFile& file, const Config& config, const std::string& name,
                        const ImportOptions& options) {
  Imported out;
  Checkpoint& checkpoint = out.checkpoint;
  for (const auto& [key, tensor] : file.tensors)
    if (key.starts_with(options.prefix))
      checkpoint.model[key.substr(options.prefix.size())] = tensor;
  check<ConfigError>(!checkpoint.model.empty(), "--prefix ", options.prefix, ": none of the ",
                     file.tensors.size(), " tensors of ", name, " has a name that begins with it",
                     file.tensors.empty() ? "" : "; the first is ",
                     file.tensors.empty() ? "" : file.tensors.begin()->first);
  checkpoint.config = effective_config(config, nullptr);
  checkpoint.training.seed = read_seed(config);
  checkpoint.training.step = count_in(file, "step");

  attention::Transformer model(nn::root(DType::f32, read_seed(config)),
                               read_model(config, nullptr));
  try {
    out.tensors =
        options.partial ? load_fitting_weights(model, checkpoint) : load_weights(model, checkpoint);
  } catch (const DataError& error) {
    throw DataError(name + ": " + error.what());
  }
  check<DataError>(!out.tensors.taken.empty(), name,
                   ": none of its tensors has the name and the shape of one of the model; it has ",
                   short_list(out.tensors.unused), ", the model ",
                   short_list(out.tensors.initialised));
  for (auto& [key, tensor] : checkpoint.model = model.state_dict()) tensor = tensor.clone();
  out.parameters = model.parameter_count();
  return out;
}

}  // namespace longhand::train
