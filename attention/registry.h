// The registry: variants by name, what holds of them, and how they are made.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/attention/variant.h"

namespace longhand::attention {

using OptionSet = std::vector<std::pair<std::string, OptionValue>>;

/// What a variant's file tells the registry.
struct Registration {
  Traits traits;
  std::unique_ptr<Variant> (*make)(const nn::Scope&, const Config&);
  /// The option sets that the conformance suite runs: together every option, and sizes small enough
  /// that 13 tokens are more than landmarks or slots.
  std::vector<OptionSet> checked = {{}};
};

/// The names that make() knows, in the order of variants.def, and those added by add().
std::vector<std::string> names();
/// Throws ConfigError for an unknown name, listing the known ones and the nearest.
const Traits& traits(std::string_view name);
/// Its Registration::checked.
const std::vector<OptionSet>& checked_options(std::string_view name);
/// Constructs a variant. Throws ConfigError for an unknown name, options out of range, or
/// config.causal where the variant cannot be (with the reason).
std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config);
/// Adds a variant of your own, from outside the library. Throws ConfigError if the name is taken.
void add(const std::string& name, const Registration& registration);

}  // namespace longhand::attention
