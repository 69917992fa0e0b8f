#include <algorithm>

#include "longhand/attention/conformance/tools.h"
#include "longhand/core/measure/clock.h"

namespace longhand::attention {
namespace {

using conformance::Findings;
using conformance::timed;

const CheckDescription of_definition{
    "definition", "results and gradients are those of the weights that its Spec defines"};

bool selected(const ConformanceOptions& how, const std::string& check) {
  return how.checks.empty() || std::ranges::find(how.checks, check) != how.checks.end();
}

void check_names(const ConformanceOptions& how) {
  std::vector<std::string> known{of_definition.name};
  for (const CheckDescription& check : invariants()) known.push_back(check.name);
  for (const std::string& variant : names())
    for (const Evidence& each : spec(variant).evidence) known.push_back(each.name);
  for (const std::string& check : how.checks) {
    const std::string near = nearest(check, known);
    longhand::check<ConfigError>(std::find(known.begin(), known.end(), check) != known.end(),
                                 "conformance: unknown check \"", check, "\"",
                                 near.empty() ? "; longhand check attention --list lists them"
                                              : "; did you mean \"" + near + "\"?");
  }
}

std::string title(const conformance::Subject& subject) {
  std::string text = subject.name;
  for (const auto& [key, value] : subject.options) {
    const auto* plain = std::get_if<std::string>(&value);
    text += " " + key + "=" + (plain ? *plain : to_string(value));
  }
  return subject.causal ? text + " causal" : text;
}

}  // namespace

CheckResult conformance::timed(const std::string& variant, const std::string& check,
                               const std::function<void(Findings&)>& body) {
  const double start = clock_seconds();
  Findings findings;
  try {
    body(findings);
  } catch (const std::exception& error) {
    findings.expect(false, "threw an exception: ", error.what());
  }
  return {variant, check, findings.failures(), findings.measured_text(), clock_seconds() - start};
}

std::vector<CheckDescription> invariants() {
  std::vector<CheckDescription> out;
  for (const auto& check : conformance::invariant_checks()) out.push_back(check.description);
  return out;
}

std::vector<CheckDescription> evidence(const std::string& variant) {
  std::vector<CheckDescription> out;
  if (spec(variant).weights) out.push_back(of_definition);
  for (const Evidence& each : spec(variant).evidence) out.push_back({each.name, each.summary});
  return out;
}

std::string not_checked(const std::string& variant) {
  const Spec& own = spec(variant);
  if (own.weights || !own.evidence.empty()) return "";
  return variant +
         ": no check compares it with its formula, since its Spec has neither weights (its "
         "definition) nor evidence; other formulas pass the same checks";
}

std::vector<CheckResult> check_invariants(const std::string& variant, const OptionSet& options,
                                          const ConformanceOptions& how) {
  check_names(how);
  std::vector<CheckResult> results;
  const Capabilities can = conformance::capabilities_of(variant, options);
  for (const bool causal : {false, true}) {
    if (causal ? !can.causal : can.causal_only) continue;
    const conformance::Subject subject{variant, options, causal};
    std::vector<conformance::Check> checks = conformance::invariant_checks();
    if (spec(variant).weights) checks.push_back({of_definition, conformance::definition});
    for (const auto& check : checks) {
      if (!selected(how, check.description.name)) continue;
      results.push_back(timed(title(subject), check.description.name,
                              [&](Findings& findings) { check.run(subject, findings); }));
      if (how.on_result) how.on_result(results.back());
    }
  }
  return results;
}

std::vector<CheckResult> check_conformance(const std::string& variant,
                                           const ConformanceOptions& how) {
  check_names(how);
  std::vector<CheckResult> results;
  for (const OptionSet& options : spec(variant).cases)
    for (CheckResult& result : check_invariants(variant, options, how))
      results.push_back(std::move(result));
  for (const Evidence& each : spec(variant).evidence) {
    if (!selected(how, each.name)) continue;
    results.push_back(timed(variant, each.name, each.run));
    if (how.on_result) how.on_result(results.back());
  }
  return results;
}

}  // namespace longhand::attention
