// longhand check attention: the conformance suite, over the library's variants.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "longhand/attention/conformance/conformance.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"

namespace longhand::cli {
namespace {

using attention::CheckResult;

struct Arguments : Common {
  std::vector<std::string> variants;  // if empty, all
  std::vector<std::string> checks;    // if empty, all
  bool list = false, verbose = false;
};

Json to_json(const CheckResult& result) {
  return {{"variant", result.variant},   {"check", result.check},
          {"passed", result.passed()},   {"failures", result.failures},
          {"measured", result.measured}, {"seconds", json_number(result.seconds)}};
}

void list_checks(const std::vector<std::string>& variants, bool json) {
  Json out = Json::array();
  const auto print = [&](const std::string& of, const auto& checks) {
    if (!json && !checks.empty()) print_stdout("{}:\n", of);
    for (const auto& check : checks) {
      if (!json) print_stdout("  {:<24}{}\n", check.name, check.summary);
      out.push_back({{"variant", of}, {"check", check.name}, {"summary", check.summary}});
    }
  };
  print("every variant", attention::invariants());
  for (const std::string& variant : variants) print(variant, attention::evidence(variant));
  if (json) print_json({{"checks", out}});
}

int check_attention(const Arguments& arguments) {
  const std::vector<std::string> variants =
      arguments.variants.empty() ? attention::names() : arguments.variants;
  for (const std::string& variant : variants) attention::spec(variant);  // throws if unknown
  if (arguments.list) {
    list_checks(variants, arguments.json);
    return success;
  }
  attention::OptionSet options;
  if (!arguments.set.empty()) {
    if (variants.size() != 1)
      throw ConfigError("check attention: --set requires exactly one --variant");
    train::Config config;
    apply(arguments, config);
    for (const auto& [name, value] : config.given()) {
      if (!name.starts_with("attention.") || name == "attention.type")
        throw ConfigError(
            "check attention: " + name +
            ": expected an option of [attention] other than type; set the variant with --variant");
      options.emplace_back(name.substr(name.find('.') + 1), value);
    }
  }

  int64_t held = 0, all = 0;
  double seconds = 0;
  Json results = Json::array();
  std::string subject;  // the variant or group being counted
  int64_t subject_held = 0, subject_all = 0;
  double subject_seconds = 0;
  const auto end_subject = [&] {
    if (subject_all && !arguments.json && !arguments.quiet)
      print_stdout("{:<60} {:>3} of {:>3}  {:6.2f} s\n", subject, subject_held, subject_all,
                   subject_seconds);
    flush_stdout();
    subject_held = subject_all = 0;
    subject_seconds = 0;
  };
  attention::ConformanceOptions how{.checks = arguments.checks};
  how.on_result = [&](const CheckResult& result) {
    held += result.passed();
    ++all;
    seconds += result.seconds;
    if (arguments.json) {
      results.push_back(to_json(result));
      return;
    }
    if (result.variant != subject) end_subject();
    subject = result.variant;
    subject_held += result.passed();
    ++subject_all;
    subject_seconds += result.seconds;
    for (const std::string& failure : result.failures)
      print_stdout("FAILED {} / {}: {}\n", result.variant, result.check, failure);
    if (result.passed() && arguments.verbose && !result.measured.empty())
      print_stdout("  {} / {}: {}\n", result.variant, result.check, result.measured);
  };
  for (const std::string& variant : variants) {
    if (arguments.set.empty())
      attention::check_conformance(variant, how);
    else
      attention::check_invariants(variant, options, how);
    end_subject();
  }
  if (arguments.json)
    print_json({{"passed", held}, {"checks_run", all}, {"seconds", seconds}, {"checks", results}});
  else
    print_stdout("{} of {} checks passed, {:.1f} s\n", held, all, seconds);
  return held == all ? success : failure;
}

}  // namespace

void add_check(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command group = program.group("check", "Run the library's self-checks");
  Command c = group.command(
      "attention",
      "Run the conformance suite over attention variants; exits with 1 if a check fails",
      [a] { return check_attention(*a); });
  c.add("--variant", a->variants, "NAME", "Only this variant; may be repeated").repeated();
  c.add("--check", a->checks, "NAME", "Only this check; may be repeated").repeated();
  c.flag("--list", a->list, "List the checks and run none");
  c.flag("-v,--verbose", a->verbose, "Also print measured values");
  c.set(*a);
  c.quiet(*a);
  c.threads();
  c.json(a->json);
  c.footer(
      "With --set attention.KEY=VALUE the invariants run for these options of one --variant; "
      "otherwise for option sets that cover all of its options, followed by limits and "
      "statistics. For variants of your own, see longhand/attention/conformance/conformance.h.");
}

}  // namespace longhand::cli
