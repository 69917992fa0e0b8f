#include "longhand/train/transfer/weights.h"

#include <algorithm>

#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"

namespace longhand::train {
namespace {

/// Returns the part of a checkpoint with this name: see export_part().
nn::StateDict part_of(const Checkpoint& checkpoint, const std::string& part) {
  if (part == "weights") return checkpoint.weights();
  if (part == "model") return checkpoint.model;
  if (part == "optimizer") return checkpoint.optimizer;
  if (part == "ema") return checkpoint.ema;
  throw ConfigError("--part " + part + ": expected one of weights, model, optimizer, ema");
}

/// Returns a metadata entry that is a non-negative integer; 0 for anything else.
int64_t count_in(const TensorFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) return 0;
  return std::max<int64_t>(0, parse_number<int64_t>(found->second).value_or(0));
}

/// Returns "model.layers = 3 here, 2 in the file; " for each size of tensors that differs.
std::string different_sizes(const attention::TransformerConfig& model, const nn::StateDict& state) {
  std::string out;
  const auto compare = [&](const char* option, int64_t here, const std::string& name, int axis) {
    const auto found = state.find(name);
    const int64_t there =
        found != state.end() && axis < found->second.rank() ? found->second.size(axis) : here;
    if (here != there)
      out += concat_message("model.", option, " = ", here, " here, ", there, " in the file; ");
  };
  compare("vocabulary", model.vocabulary, "embeddings.token.weight", 0);
  compare("d_model", model.d_model, "embeddings.token.weight", 1);
  compare("max_length", model.max_length, "embeddings.position.weight", 0);
  compare("d_mlp", model.d_mlp, "blocks.0.mlp.fc2.weight", 1);
  compare("classes", model.classes, "head.weight", 0);
  int64_t layers = 0;
  while (state.contains(concat_message("blocks.", layers, ".norm1.weight"))) ++layers;
  if (layers > 0 && layers != model.layers)
    out += concat_message("model.layers = ", model.layers, " here, ", layers, " in the file; ");
  const bool has_norm = state.contains("norm.weight");
  if (layers > 0 && has_norm != (model.norm == "pre" || model.reconstruct))
    out += concat_message("model.norm = \"", model.norm, "\" here, and the file has ",
                          has_norm ? "a" : "no", " norm after the blocks, which models with \"",
                          has_norm ? "pre" : "post", "\" have; ");
  if (!state.contains("head.weight") && !model.tied_embeddings && model.classes == model.vocabulary)
    out += "model.tied_embeddings = false here, and the file has no weight of a head; ";
  return out;
}

/// Throws DataError unless the file has exactly the model's tensors. Names are those of the file.
void check_names(const attention::Transformer& model, const nn::StateDict& state,
                 const std::map<std::string, std::string>& theirs) {
  const auto named = [&](const nn::StateDict& from) {
    nn::StateDict out;
    for (const auto& [name, tensor] : from)
      out[theirs.contains(name) ? theirs.at(name) : name] = tensor;
    return out;
  };
  try {
    nn::check_state(named(model.state_dict()), named(state),
                    "the model (--rename changes names, --partial loads what fits)");
  } catch (const DataError& error) {
    throw DataError(different_sizes(model.config(), state) + error.what());
  }
}

}  // namespace

TensorFile export_part(const Checkpoint& checkpoint, const std::string& part,
                       const std::string& names) {
  TensorFile out{.tensors = part_of(checkpoint, part)};
  check<ConfigError>(!out.tensors.empty(), "--part ", part, ": the checkpoint has no tensors there",
                     part == "ema" ? ", because it was trained without train.ema_decay" : "");
  if (const NameScheme* const scheme = find_scheme(names)) {
    check<ConfigError>(part == "weights" || part == "model", "--names ", names, " with --part ",
                       part, ": expected --part weights or model");
    const Config config = Config::parse(checkpoint.config, "checkpoint");
    out.tensors = to_names(*scheme, out.tensors, read_model(config, nullptr));
  }
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
  checkpoint.model = renamed(checkpoint.model, options.rename);
  const attention::TransformerConfig described = read_model(config, nullptr);
  out.names = options.names.empty() ? detect_scheme(checkpoint.model) : find_scheme(options.names);
  Translated translated;
  if (out.names) {
    translated =
        with_file_name(name, [&] { return from_names(*out.names, checkpoint.model, described); });
    checkpoint.model = translated.state;
  }
  checkpoint.config = effective_config(config, nullptr);
  checkpoint.training.seed = read_seed(config);
  checkpoint.training.step = count_in(file, "step");

  attention::Transformer model(nn::root(DType::f32, read_seed(config)), described);
  out.tensors = with_file_name(name, [&] {
    if (!options.partial) check_names(model, checkpoint.model, translated.theirs);
    return load_weights(model, checkpoint, {.only_fitting = options.partial});
  });
  check<DataError>(!out.tensors.taken.empty(), name,
                   ": none of its tensors has the name and the shape of one of the model; it has ",
                   short_list(out.tensors.unused), ", the model ",
                   short_list(out.tensors.initialised));
  for (auto& [key, tensor] : checkpoint.model = model.state_dict()) tensor = tensor.clone();
  out.model = described;
  out.parameters = model.parameter_count();
  return out;
}

}  // namespace longhand::train
