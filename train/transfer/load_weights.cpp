#include "longhand/train/transfer/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "longhand/train/config/experiment.h"

namespace longhand::train {
namespace {

bool belongs_to_variant(const std::string& name) {
  for (const char* const part : {".attention.kernel.", ".attention.query.", ".attention.key."})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

/// Returns the buffers of variants that depend on random numbers: the samples and their counters.
std::set<std::string> random_tensors(attention::Transformer& model) {
  std::set<std::string> trained;
  for (const auto& [name, parameter] : model.named_parameters()) trained.insert(name);
  std::set<std::string> out;
  for (const auto& [name, tensor] : model.state_dict())
    for (int64_t layer = 0; layer < model.config().layers; ++layer) {
      const attention::Variant& kernel = model.kernel(layer);
      if (kernel.capabilities().random && name.starts_with(kernel.full_name() + ".") &&
          !trained.contains(name))
        out.insert(name);
    }
  return out;
}

bool fits(const Tensor& from, const Tensor& to) {
  return from.shape() == to.shape() &&
         (from.dtype() == to.dtype() || (is_float(from.dtype()) && is_float(to.dtype())));
}

/// Returns the options that determine a model's tensors and their shapes.
EffectiveValues options_of_tensors(const attention::TransformerConfig& model) {
  EffectiveValues values;
  for (const auto& [name, value] : options_of_model(model))
    if (name != "causal" && name != "dropout" && name != "dtype") values["model." + name] = value;
  values["attention.type"].value = model.attention_name();
  for (const auto& [name, value] : model.check_attention())
    if (name != "type") values["attention." + name] = value;
  return values;
}

/// Returns "model.d_model = 32 here, 64 in the checkpoint: " with all options that differ; empty if
/// none does or the checkpoint has no configuration.
std::string changed_options(const attention::TransformerConfig& model,
                            const Checkpoint& checkpoint) {
  std::string out;
  try {
    const Config config = Config::parse(checkpoint.config, "checkpoint");
    const EffectiveValues theirs = options_of_tensors(read_model(config, nullptr));
    for (const auto& [name, ours] : options_of_tensors(model))
      if (const auto found = theirs.find(name);
          found != theirs.end() && found->second.value != ours.value)
        out += concat_message(out.empty() ? "" : ", ", name, " = ", to_string(ours.value),
                              " here, ", to_string(found->second.value), " in the checkpoint");
  } catch (const ConfigError&) {
    return "";
  }
  return out.empty() ? out : out + ": ";
}

/// Returns "{a,b}", "{0-3,5}"; "a" if there is only one. Integers are ascending.
std::string alternatives(const std::vector<std::string>& words) {
  std::vector<int64_t> numbers;
  for (const std::string& word : words)
    if (const auto number = parse_number<int32_t>(word); number && *number >= 0)
      numbers.push_back(*number);
  std::string out;
  if (numbers.size() == words.size()) {
    std::ranges::sort(numbers);
    for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
      for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
      out += concat_message(begin > 0 ? "," : "", numbers[begin]);
      if (end > begin + 1) out += concat_message("-", numbers[end - 1]);
    }
  } else {
    out = fmt::format("{}", fmt::join(words, ","));
  }
  return words.size() == 1 ? out : concat_message("{", out, "}");
}

/// Like short_list(), with one entry per group of names.
std::vector<std::string> shortened(const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> below;  // by first part: the rests
  std::vector<std::string> order;
  for (const std::string& name : names) {
    const size_t dot = name.find('.');
    const std::string first = name.substr(0, dot);
    if (!below.contains(first)) order.push_back(first);
    below[first].push_back(dot == std::string::npos ? "" : name.substr(dot + 1));
  }
  // First parts with equal rests are written together.
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const std::string& first : order) {
    const std::vector<std::string>& rests = below[first];
    std::string text;
    if (rests != std::vector<std::string>{""}) {
      const std::vector<std::string> parts = shortened(rests);
      text = fmt::format("{}", fmt::join(parts, ","));
      text = parts.size() == 1 ? "." + text : ".{" + text + "}";
    }
    const auto same =
        std::ranges::find_if(groups, [&](const auto& group) { return group.first == text; });
    if (same == groups.end())
      groups.push_back({text, {first}});
    else
      same->second.push_back(first);
  }
  std::vector<std::string> out;
  for (const auto& [rest, firsts] : groups) out.push_back(alternatives(firsts) + rest);
  return out;
}

/// Returns whether a tensor is a matrix of a block that models with other attention also have.
bool is_matrix_of_block(const std::string& name, const Tensor& tensor) {
  return name.starts_with("blocks.") && tensor.rank() >= 2 &&
         name.find(".kernel.") == std::string::npos;
}

/// Returns "model.d_model is 64 there and 32 here", for every size of the blocks that differs.
std::string differences(const Options& theirs, const attention::TransformerConfig& model) {
  const EffectiveValues ours = options_of_tensors(model);
  std::string out;
  for (const char* const key : {"d_model", "d_mlp", "heads", "kv_heads"}) {
    const Options::Given* const given = theirs.find(key);
    const OptionValue& own = ours.at(concat_message("model.", key)).value;
    if (given && given->value != own)
      out += concat_message(out.empty() ? "" : ", ", "model.", key, " is ", to_string(given->value),
                            " there and ", to_string(own), " here");
  }
  return out.empty() ? "the names or the shapes of all tensors differ" : out;
}

}  // namespace

EffectiveValues options_of_model(const attention::TransformerConfig& model) {
  Options section("model");
  section.set("d_mlp", model.d_mlp);  // its default depends on d_model
  EffectiveValues values;
  read_section(section, model, &values);
  return values;
}

bool changes_attention(const std::vector<std::string>& assignments) {
  return std::ranges::any_of(assignments,
                             [](const auto& a) { return a.starts_with("attention."); });
}

Fresh load_weights(attention::Transformer& model, const Checkpoint& checkpoint,
                   const LoadOptions& options) {
  const auto may_differ = [&](const std::string& name) {
    return options.only_fitting || (options.other_attention && belongs_to_variant(name));
  };
  const std::set<std::string> kept =
      options.new_draws ? random_tensors(model) : std::set<std::string>{};
  nn::StateDict state = checkpoint.weights();
  const nn::StateDict own = model.state_dict();
  Fresh fresh;
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (kept.contains(name) && (may_differ(name) || found != state.end())) {
      fresh.drawn.push_back(name);
      state[name] = tensor.clone();
    } else if (!may_differ(name) || (found != state.end() && fits(found->second, tensor))) {
      fresh.taken.push_back(name);
    } else {
      fresh.initialised.push_back(name);
      state[name] = tensor.clone();
    }
  }
  for (const auto& [name, tensor] : checkpoint.model) {
    if (!may_differ(name) || own.contains(name)) continue;
    fresh.unused.push_back(name);
    state.erase(name);
  }
  try {
    model.load_state_dict(state);
  } catch (const DataError& error) {
    throw DataError(changed_options(model.config(), checkpoint) + error.what());
  }
  return fresh;
}

Fresh load_weights(attention::Transformer& model, const SavedModel& saved,
                   const LoadOptions& options) {
  return with_file_name(saved.file, [&] { return load_weights(model, saved.checkpoint, options); });
}

void check_finite(const Checkpoint& checkpoint, const std::string& file) {
  for (const auto& [name, tensor] : checkpoint.weights()) {
    if (!is_float(tensor.dtype())) continue;
    const std::vector<double> values = tensor.to_vector<double>();
    const auto bad =
        std::ranges::count_if(values, [](double value) { return !std::isfinite(value); });
    check<DivergedError>(bad == 0, file, ": ", bad, " of ", values.size(), " values of ", name,
                         " are not finite; expected a model that can be evaluated");
  }
}

std::string short_list(const std::vector<std::string>& names) {
  return comma_list(shortened(names));
}

Initialisation initialise(attention::Transformer& model, const InitOptions& options) {
  const SavedModel saved = load_model(find_checkpoint(options.from, options.checkpoint));
  const Fresh tensors = load_weights(model, saved.checkpoint, {.only_fitting = true});
  const nn::StateDict own = model.state_dict();
  check<ConfigError>(
      std::ranges::any_of(tensors.taken,
                          [&](const auto& name) { return is_matrix_of_block(name, own.at(name)); }),
      "train.init_from: no weights of the blocks of ", saved.file,
      " fit this model: ", differences(saved.config.model(), model.config()),
      "; start from a run with the same sizes, or train without init_from");
  return {saved.source(), tensors};
}

}  // namespace longhand::train
