#include "longhand/attention/registry.h"

#include <deque>

namespace longhand::attention {

#define VARIANT(name) Registration name##_variant();
#include "longhand/attention/variants.def"
#undef VARIANT

namespace {

struct Entry {
  std::string name;
  Registration registration;
};

// A deque, so that a variant added later does not move the traits somebody holds. A function calls
// those of variants.def by name: a registration by static objects would be lost when an object file
// of a static library is not linked because nobody calls it.
std::deque<Entry>& registry() {
  static std::deque<Entry> entries{
#define VARIANT(name) {#name, name##_variant()},
#include "longhand/attention/variants.def"
#undef VARIANT
  };
  return entries;
}

const Registration& find(std::string_view name) {
  for (const Entry& entry : registry())
    if (entry.name == name) return entry.registration;
  std::string known;
  for (const std::string& each : names()) known += (known.empty() ? "" : ", ") + each;
  const std::string near = nearest(name, names());
  throw ConfigError(concat_message("attention: no variant is called \"", name, "\"; ",
                                   near.empty() ? "" : "did you mean \"" + near + "\"? ",
                                   "known are ", known));
}

}  // namespace

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const Entry& entry : registry()) list.push_back(entry.name);
  return list;
}

const Traits& traits(std::string_view name) { return find(name).traits; }

const std::vector<OptionSet>& checked_options(std::string_view name) { return find(name).checked; }

std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config) {
  const Registration& registration = find(name);
  check<ConfigError>(config.heads >= 1 && config.head_dim >= 1 && config.max_length >= 1, name,
                     ": heads ", config.heads, ", head_dim ", config.head_dim, " and max_length ",
                     config.max_length, " must all be at least 1");
  check<ConfigError>(!config.causal || registration.traits.causal, name,
                     ": causal attention is impossible: ", registration.traits.causal_reason);
  check<ConfigError>(
      config.kv_heads >= 0 && (!config.kv_heads || config.heads % config.kv_heads == 0), name,
      ": kv_heads ", config.kv_heads, " must divide heads ", config.heads);
  Config named = config;
  named.name = name;
  if (!named.kv_heads) named.kv_heads = named.heads;
  return registration.make(scope, named);
}

void add(const std::string& name, const Registration& registration) {
  for (const Entry& entry : registry())
    check<ConfigError>(entry.name != name, "attention: a variant called \"", name,
                       "\" exists already");
  registry().push_back({name, registration});
}

}  // namespace longhand::attention
