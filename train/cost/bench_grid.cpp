#include "longhand/train/cost/bench_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "longhand/attention/model/transformer.h"
#include "longhand/attention/registry.h"
#include "longhand/train/config/experiment.h"

namespace longhand::train {
namespace {

// The usual models: L encodes and classifies long sequences, M is a byte-level language model.
void set_model(const std::string& name, Config& config) {
  static const std::map<std::string, std::vector<std::string>> presets = {
      {"L",
       {"layers=2", "d_model=64", "heads=2", "d_mlp=128", "vocabulary=256", "classes=10",
        "per_token=false", "causal=false"}},
      {"M",
       {"layers=4", "d_model=256", "heads=8", "d_mlp=1024", "vocabulary=256", "classes=256",
        "per_token=true", "causal=true"}}};
  const auto found = presets.find(name);
  check<ConfigError>(found != presets.end(), "--model ", name, ": expected L or M");
  for (const std::string& option : found->second) config.assign("model." + option, "--model");
}

Config without_variant(const BenchGrid& a) {
  Config config;
  set_model(a.model, config);
  for (const auto& [flag, key, value] : {std::tuple("--d-model", "d_model", a.d_model),
                                         {"--heads", "heads", a.heads},
                                         {"--layers", "layers", a.layers},
                                         {"--d-mlp", "d_mlp", a.d_mlp}})
    if (value) config.assign("model", key, *value, flag);
  if (a.causal) config.assign("model", "causal", true, "--causal");
  if (a.dropout) config.assign("model", "dropout", *a.dropout, "--dropout");
  for (const std::string& assignment : a.set) config.assign(assignment);
  config.erase("train", "seed");  // BenchOptions::seed
  check<ConfigError>(!config.attention().has("type") && !config.model().has("max_length"),
                     "bench: set the variant with --attention and the length with --length");
  return config;
}

/// Returns the options of [model].
attention::TransformerConfig model_of(const Config& config) {
  return read_options<attention::TransformerConfig>(config.model());
}

/// Returns the [attention] options that variants declare; a single variant is for all layers.
std::set<std::string> options_of(std::vector<std::string> variants, int64_t layers) {
  if (variants.size() == 1) variants.resize(static_cast<size_t>(layers), variants.front());
  std::set<std::string> names{"type"};
  for (size_t layer = 0; layer < variants.size(); ++layer)
    for (const Field& field : attention::spec(variants[layer]).options)
      names.insert({field.name, fmt::format("{}.{}", layer, field.name)});
  return names;
}

/// Throws ConfigError for options of [attention] that no variant declares.
void check_declared(const Config& config, const std::vector<BenchCell>& cells) {
  const int64_t layers = model_of(config).layers;
  std::set<std::string> known;
  for (const BenchCell& cell : cells)
    known.merge(options_of(split_at(cell.attention, '+'), layers));
  for (const std::string& key : config.attention().keys())
    check<ConfigError>(known.contains(key), "attention.", key,
                       ": none of the variants has this option");
}

/// Returns whether attention.dropout, if given, would apply to every layer whose variant declares
/// it, and to at least one layer that sets none of its own.
bool drops_probabilities(const Config& config) {
  EffectiveSections values;
  const attention::TransformerConfig model = read_model(config, nullptr, &values);
  const EffectiveValues& read = values.at("attention");
  bool any = false;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    if (!options_of({model.attention_of(layer)}, 1).contains("dropout")) continue;
    const auto dropout =
        read.find(model.layer_attention.empty() ? "dropout" : fmt::format("{}.dropout", layer));
    if (dropout == read.end()) return false;
    any = any || !dropout->second.given;
  }
  return any;
}

}  // namespace

Config config_of(const BenchGrid& a, const BenchCell& cell) {
  const std::vector<std::string> variants = split_at(cell.attention, '+');
  Config config = without_variant(a);
  config.assign("attention", "type", variants, "--attention");
  config.assign("model", "max_length", cell.length, "--length");
  const auto known = options_of(variants, model_of(config).layers);
  for (const std::string& key : config.attention().keys())
    if (!known.contains(key)) config.erase("attention", key);
  if (a.dropout && *a.dropout > 0 && drops_probabilities(config))
    config.assign("attention", "dropout", *a.dropout, "--dropout");
  return config;
}

std::vector<std::string> assignments(const Config& config) {
  std::vector<std::string> out;
  for (const auto& [name, value] : config.given())
    if (name != "attention.type" && name != "model.max_length")
      out.push_back(name + "=" + to_string(value));
  return out;
}

double attention_dropout(const Config& config) {
  EffectiveSections values;
  read_model(config, nullptr, &values);
  double most = 0;
  for (const auto& [key, option] : values.at("attention"))
    if (key == "dropout" || key.ends_with(".dropout"))
      most = std::max(most, std::get<double>(option.value));
  return most;
}

std::vector<BenchCell> cells_of(const BenchGrid& a) {
  const Config config = without_variant(a);
  const bool causal = model_of(config).causal;
  std::vector<std::string> variants = a.attention;
  if (variants.empty())
    for (const std::string& name : attention::names()) {
      const attention::Capabilities can = attention::capabilities(name);
      if (causal ? can.causal : !can.causal_only) variants.push_back(name);
    }
  std::vector<int64_t> lengths = a.length;
  if (lengths.empty())
    lengths = a.model == "M" ? std::vector<int64_t>{2048, 8192}
                             : std::vector<int64_t>{1024, 2048, 4096, 8192, 16384};
  std::vector<BenchCell> cells;
  for (const std::string& name : variants) {
    for (const std::string& variant : split_at(name, '+')) attention::spec(variant);  // throws
    for (const int64_t length : lengths) cells.push_back({name, length});
  }
  check_declared(config, cells);
  return cells;
}

}  // namespace longhand::train
