#include "longhand/attention/registry.h"

#include <algorithm>
#include <deque>

namespace longhand::attention {

#define VARIANT(name) Spec name##_variant();
#include "longhand/attention/variants.def"
#undef VARIANT

namespace {

struct Entry {
  std::string name;
  Spec spec;
};

// A deque, so that adding a variant does not move specs that callers hold references to. The
// functions of variants.def are called by name: registration by static objects would be lost if the
// linker drops an object file of the static library that nothing refers to.
std::deque<Entry>& registry() {
  static std::deque<Entry> entries{
#define VARIANT(name) {#name, name##_variant()},
#include "longhand/attention/variants.def"
#undef VARIANT
  };
  return entries;
}

// Whether an option was given for this variant, not for one replaced on the command line.
bool has_required(const Options& section, const std::string& key) {
  return section.has(key) && !section.is_optional(key);
}

// A configuration with the fields set by the registry. `values` is set to the options that apply.
Config completed(std::string_view name, const Config& config, EffectiveValues* values = nullptr) {
  const Spec& of = spec(name);
  check<ConfigError>(config.heads >= 1 && config.head_dim >= 1 && config.max_length >= 1, name,
                     ": expected heads, head_dim and max_length of at least 1, got ", config.heads,
                     ", ", config.head_dim, " and ", config.max_length);
  check<ConfigError>(
      config.kv_heads >= 0 && (!config.kv_heads || config.heads % config.kv_heads == 0), name,
      ": expected kv_heads to divide heads = ", config.heads, ", got ", config.kv_heads);
  for (const auto& [option, instead] : of.replaced)
    check_replaced(name, option, config.options, option);
  std::vector<std::string> known = names_of(of.options);
  // Ignoring it would give a model less dropout than its configuration states.
  if (std::find(known.begin(), known.end(), "dropout") == known.end())
    config.options.require(!has_required(config.options, "dropout"), "dropout",
                           concat_message(name, " has no attention probabilities to drop"));
  Config out = config;
  out.name = name;
  if (!out.kv_heads) out.kv_heads = out.heads;
  out.capabilities = of.check(out, values);
  known.emplace_back("type");
  for (const std::string& key : config.options.keys()) {
    if (std::ranges::find(known, key) != known.end() || !has_required(config.options, key))
      continue;
    std::string others;
    for (const Entry& entry : registry())
      if (std::ranges::count(names_of(entry.spec.options), key))
        others += (others.empty() ? "" : ", ") + entry.name;
    config.options.require(
        others.empty(), key,
        concat_message(name, " has no such option; variants that have it: ", others));
  }
  config.options.check_known(known);
  return out;
}

Config checked(std::string_view name, const Config& config, EffectiveValues* values = nullptr) {
  Config out = completed(name, config, values);
  const Capabilities& can = out.capabilities;
  check<ConfigError>(!config.causal || can.causal, name,
                     ": causal attention is impossible: ", can.causal_reason);
  check<ConfigError>(config.causal || !can.causal_only, name,
                     ": this variant is causal only; set model.causal = true");
  return out;
}

}  // namespace

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const Entry& entry : registry()) list.push_back(entry.name);
  return list;
}

const Spec& spec(std::string_view name) {
  for (const Entry& entry : registry())
    if (entry.name == name) return entry.spec;
  const std::string near = nearest(name, names());
  throw ConfigError(concat_message("attention: unknown variant \"", name, "\"; ",
                                   near.empty() ? "" : "did you mean \"" + near + "\"? ",
                                   "the variants are ", comma_list(names())));
}

Capabilities capabilities(std::string_view name, const Config& config) {
  return completed(name, config).capabilities;
}

EffectiveValues check_options(std::string_view name, const Config& config) {
  EffectiveValues values;
  checked(name, config, &values);
  return values;
}

void check_replaced(std::string_view name, const std::string& option, const Options& section,
                    const std::string& key) {
  const auto& replaced = spec(name).replaced;
  const auto found = replaced.find(option);
  if (found != replaced.end())
    section.require(!has_required(section, key), key,
                    concat_message(name, " has no such option; ", found->second));
}

std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config) {
  return spec(name).make(scope, checked(name, config));
}

void add(const std::string& name, const Spec& spec) {
  for (const Entry& entry : registry())
    check<ConfigError>(entry.name != name, "attention: the name \"", name,
                       "\" is already registered");
  check<ConfigError>(spec.make && spec.check, "attention: the Spec of \"", name,
                     "\" has no factory; complete it with make_spec()");
  registry().push_back({name, spec});
}

}  // namespace longhand::attention
