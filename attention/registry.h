// The registry: variants by name, what they are and how they are made.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

namespace longhand::attention {

namespace conformance {
class Findings;
}

using OptionSet = std::vector<std::pair<std::string, OptionValue>>;

/// A check that belongs to one variant: an exactness limit, a statistic, a rate.
struct Evidence {
  std::string name, summary;
  void (*run)(conformance::Findings&);
};

/// What a variant's file tells the registry. make_spec() fills in the second half.
struct Spec {
  std::string summary;  // one line: what it computes
  std::string paper;    // "Wang et al. 2020, arXiv 2006.04768"
  /// The option sets that the conformance suite runs: together every option, and sizes small enough
  /// that 13 tokens are more than landmarks or slots.
  std::vector<OptionSet> cases = {{}};
  std::vector<Evidence> evidence{};
  /// Options that it had once, and what to write instead.
  std::map<std::string, std::string> replaced{};

  Schema options{};
  /// Reads and checks the options of a configuration, without making anything.
  Capabilities (*capabilities)(const Config&) = nullptr;
  std::unique_ptr<Variant> (*make)(const nn::Scope&, const Config&) = nullptr;
};

/// The options of a configuration: those of `config.options` over the defaults.
template <class VariantOptions>
VariantOptions read_variant_options(const Config& config) {
  VariantOptions options;
  if constexpr (requires { VariantOptions::defaults(config); })
    options = VariantOptions::defaults(config);
  options = read_options(config.options, options);
  if constexpr (requires { options.check(config); }) options.check(config);
  return options;
}

/// The Spec of a class derived from Variant, with a constructor (const nn::Scope&, const Config&,
/// const VariantOptions&). VariantOptions has
///
///   void describe(OptionVisitor&);                    // see core/schema.h
///   Capabilities capabilities() const;                // of a variant with these options
///   static VariantOptions defaults(const Config&);    // if defaults depend on the configuration
///   void check(const Config&) const;                  // if what is allowed does; throws ConfigError
template <class VariantOptions, class VariantClass>
Spec make_spec(Spec spec) {
  spec.options = schema_of(VariantOptions{});
  spec.capabilities = [](const Config& config) {
    return read_variant_options<VariantOptions>(config).capabilities();
  };
  spec.make = [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
    return std::make_unique<VariantClass>(scope, config,
                                          read_variant_options<VariantOptions>(config));
  };
  return spec;
}

/// The names that make() knows, in the order of variants.def, and those added by add().
std::vector<std::string> names();
/// Throws ConfigError for an unknown name, listing the known ones and the nearest.
const Spec& spec(std::string_view name);
/// What a variant can do as `config` has it, or with the default options. Throws ConfigError for an
/// unknown name, sizes below 1 and options out of range, unknown ones excepted: they are left for
/// Options::check_all_read().
Capabilities capabilities(std::string_view name, const Config& config = {});
/// The same check and that the variant can be causal, or not, as `config` wants it: all that make()
/// checks before it constructs anything.
void check_options(std::string_view name, const Config& config);
/// Constructs a variant. Throws ConfigError as check_options() does.
std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config);
/// Adds a variant of your own, from outside the library. Throws ConfigError if the name is taken,
/// and for a Spec that make_spec() has not completed.
void add(const std::string& name, const Spec& spec);

}  // namespace longhand::attention
