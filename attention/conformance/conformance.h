// Conformance: a suite of checks that every attention variant must pass, for the variants of the
// library and for your own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/attention/registry.h"

namespace longhand::attention {

/// The result of one check of one variant.
struct CheckResult {
  std::string variant;                // "performer kernel=hyperbolic causal"
  std::string check;                  // "padding"
  std::vector<std::string> failures;  // what was found and what was expected; empty: passed
  std::string measured;               // figures, if the check has any
  double seconds = 0;

  bool passed() const { return failures.empty(); }
};

/// The name of a check and a one-line summary.
struct CheckDescription {
  std::string name, summary;
};
/// Returns the checks that run over every variant, in order: the invariants U1 to U10 and related
/// ones.
std::vector<CheckDescription> invariants();
/// Returns the checks that belong to one variant: its definition, exactness limits, statistics of
/// estimators, rates of convergence. Empty if its Spec names none.
std::vector<CheckDescription> evidence(const std::string& variant);

/// Returns what the suite cannot check for a variant: if its Spec has neither weights nor evidence,
/// whether it computes its formula, because the invariants hold for many formulas. Otherwise empty.
std::string not_checked(const std::string& variant);

struct ConformanceOptions {
  std::vector<std::string> checks{};  // names; empty: all
  std::function<void(const CheckResult&)> on_result = {};
};

/// Runs the invariants, and the check of Spec::weights if defined, on a registered variant with
/// these options, in the non-causal and causal forms that it supports. Keep the options small: most
/// sequences have 1 to 150 tokens, 2 heads and head dimension 4. Throws ConfigError for an unknown
/// variant, check or option.
std::vector<CheckResult> check_invariants(const std::string& variant, const OptionSet& options,
                                          const ConformanceOptions& how = {});

/// Runs the whole suite: the invariants over every option set in Spec::cases of the variant, and
/// its evidence. Throws ConfigError for an unknown variant or check.
std::vector<CheckResult> check_conformance(const std::string& variant,
                                           const ConformanceOptions& how = {});

}  // namespace longhand::attention
