// Conformance: what every attention variant must hold, as a suite that anybody can run over a
// variant of the library or over one of their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/attention/registry.h"

namespace longhand::attention {

/// What one check found.
struct CheckResult {
  std::string variant;                // "performer kernel=hyperbolic causal"
  std::string check;                  // "padding"
  std::vector<std::string> failures;  // what was found and what was wanted; empty: it holds
  std::string measured;               // figures, where the check has any
  double seconds = 0;

  bool passed() const { return failures.empty(); }
};

/// What is checked, in order: the names and a line on each.
struct CheckDescription {
  std::string name, summary;
};
/// The checks that run over every variant: the invariants U1 to U10 and what belongs to them.
std::vector<CheckDescription> invariants();
/// The checks that belong to one variant of the library: exactness limits, statistics of
/// estimators, rates. Empty for a variant of your own.
std::vector<CheckDescription> evidence(const std::string& variant);

struct ConformanceOptions {
  std::vector<std::string> checks{};  // names; empty: all
  std::function<void(const CheckResult&)> on_result = {};
};

/// Runs the invariants over a registered variant with these options, not causal and, if it can be,
/// causal. Options should be small: sequences have 1 to 150 tokens, of 2 heads of width 4.
/// Throws ConfigError for an unknown variant, check or option.
std::vector<CheckResult> check_invariants(const std::string& variant, const OptionSet& options,
                                          const ConformanceOptions& how = {});

/// The whole suite: the invariants over every option set that the variant's registration names as
/// `checked`, and its evidence.
std::vector<CheckResult> check_conformance(const std::string& variant,
                                           const ConformanceOptions& how = {});

}  // namespace longhand::attention
