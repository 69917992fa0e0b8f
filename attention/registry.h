// The registry: variants by name, their specifications and how to construct them.
#pragma once

#include <map>
#include <memory>
#include <optional>
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

/// A check specific to one variant: an exactness limit, a statistic, a rate.
struct Evidence {
  std::string name, summary;
  void (*run)(conformance::Findings&);
};

/// The inputs of a variant's definition.
struct DefinitionInputs {
  const Config& config;        // its options: read_variant_options()
  Variable q, k;               // (B, N, H, D)
  Variable x;                  // (B, N, H D), for variants with Capabilities::uses_x
  Tensor visible;              // (B or 1, 1, N, N) u8, 1 where key j is visible to query i
  const nn::StateDict& state;  // parameters and buffers by name
};

/// What a variant's file declares to the registry. make_spec() fills in the last three fields.
struct Spec {
  std::string summary;  // one line: what it computes
  std::string paper;    // "Wang et al. 2020, arXiv 2006.04768"
  /// The option sets that the conformance suite runs. Together they cover every option, with sizes
  /// small enough that 13 tokens exceed the number of landmarks or slots.
  std::vector<OptionSet> cases = {{}};
  std::vector<Evidence> evidence{};
  /// The definition: composes the weights W (B or 1, H or 1, N, N) of the formula from operations;
  /// 0 where a key is not visible. The result is W V. The suite compares results and gradients with
  /// it. The definitions of the library's variants are in definitions/.
  Variable (*weights)(const DefinitionInputs&) = nullptr;
  /// Whether the option bias = "alibi" adds a positional bias to the scores.
  bool alibi = false;
  /// The theoretical exponent a of the error of attention, ~ (features)^a.
  std::optional<double> rate{};
  /// Options that were removed, and what to write instead.
  std::map<std::string, std::string> replaced{};

  Schema options{};
  /// Reads and checks the options of a configuration, except for unknown ones. `values` is set to
  /// the options that apply.
  Capabilities (*check)(const Config&, EffectiveValues* values) = nullptr;
  std::unique_ptr<Variant> (*make)(const nn::Scope&, const Config&) = nullptr;
};

/// Reads the options of a configuration: `config.options` over the defaults. `values` is set to the
/// options that apply.
template <class VariantOptions>
VariantOptions read_variant_options(const Config& config, EffectiveValues* values = nullptr) {
  VariantOptions options;
  if constexpr (requires { VariantOptions::defaults(config); })
    options = VariantOptions::defaults(config);
  options = read_options(config.options, options, values);
  if constexpr (requires { options.check(config); }) options.check(config);
  return options;
}

/// Makes the Spec of a class derived from Variant, with a constructor (const nn::Scope&, const
/// Config&, const VariantOptions&). VariantOptions has
///
///   void describe(OptionVisitor&);                    // see core/schema.h
///   Capabilities capabilities() const;                // of a variant with these options
///   static VariantOptions defaults(const Config&);    // if defaults depend on the configuration
///   void check(const Config&) const;                  // if allowed values do; throws ConfigError
template <class VariantOptions, class VariantClass>
Spec make_spec(Spec spec) {
  spec.options = schema_of(VariantOptions{});
  spec.check = [](const Config& config, EffectiveValues* values) {
    return read_variant_options<VariantOptions>(config, values).capabilities();
  };
  spec.make = [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
    return std::make_unique<VariantClass>(scope, config,
                                          read_variant_options<VariantOptions>(config));
  };
  return spec;
}

/// The option `dropout` of variants that drop attention weights.
inline void describe_dropout(OptionVisitor& v, double& dropout) {
  v.number("dropout", dropout, NumberRange::fraction(),
           "dropout probability for attention weights");
}

/// The names that make() accepts: first those in variants.def, in order, then those added by add().
std::vector<std::string> names();
/// Throws ConfigError for an unknown name; the message lists the known names and the nearest one.
const Spec& spec(std::string_view name);
/// The capabilities of a variant as configured by `config`, by default with default options. Throws
/// ConfigError for an unknown name, for sizes below 1, and for options that are unknown or out of
/// range.
Capabilities capabilities(std::string_view name, const Config& config = {});
/// Runs the same checks, and checks that the variant supports config.causal: everything that make()
/// checks before it constructs the variant. Returns the options that apply, as read.
EffectiveValues check_options(std::string_view name, const Config& config);
/// Throws ConfigError if the variant once had the option; the message says what to write instead.
/// `key` is the name of the option in `section`, such as "1.projection" for a single layer.
void check_replaced(std::string_view name, const std::string& option, const Options& section,
                    const std::string& key);
/// Constructs a variant. Throws ConfigError as check_options() does.
std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config);
/// Registers a variant defined outside the library. Throws ConfigError if the name is taken, or if
/// the Spec was not completed by make_spec().
void add(const std::string& name, const Spec& spec);

}  // namespace longhand::attention
