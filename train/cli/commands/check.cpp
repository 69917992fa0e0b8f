// longhand check attention: the conformance suite, over the library's variants.
#include "longhand/attention/conformance/conformance.h"
#include "longhand/train/cli/commands/commands.h"

namespace longhand::cli {
namespace {

using attention::CheckResult;

struct CheckArguments : Common {
  std::vector<std::string> variants;  // if empty, all
  std::vector<std::string> checks;    // if empty, all
  bool list = false, verbose = false;
};

struct Count {
  int64_t held = 0, all = 0;
  double seconds = 0;

  void add(const CheckResult& result) {
    held += result.passed();
    ++all;
    seconds += result.seconds;
  }
};

int list_checks(const std::vector<std::string>& variants, bool json) {
  Answer out(json);
  Json all = Json::array();
  const auto add = [&](const std::string& of, const auto& checks) {
    if (!checks.empty()) out.literal(of + ":\n");
    for (const auto& check : checks) {
      out.print("  {:<24}{}\n", check.name, check.summary);
      all.push_back({{"variant", of}, {"check", check.name}, {"summary", check.summary}});
    }
  };
  add("every variant", attention::invariants());
  for (const std::string& variant : variants) add(variant, attention::evidence(variant));
  return out.add("checks", all).end();
}

int check_attention(const CheckArguments& arguments) {
  const std::vector<std::string> variants =
      arguments.variants.empty() ? attention::names() : arguments.variants;
  for (const std::string& variant : variants) attention::spec(variant);  // throws if unknown
  if (arguments.list) return list_checks(variants, arguments.json);
  attention::OptionSet options;
  if (!arguments.set.empty()) {
    check<ConfigError>(variants.size() == 1,
                       "check attention: --set requires exactly one --variant");
    train::Config config;
    apply(arguments, config);
    for (const auto& [name, value] : config.given()) {
      check<ConfigError>(
          name.starts_with("attention.") && name != "attention.type", "check attention: ", name,
          ": expected an option of [attention] other than type; set the variant with --variant");
      options.emplace_back(name.substr(name.find('.') + 1), value);
    }
  }

  Answer out(arguments.json);
  Count total, of_subject;
  Json results = Json::array();
  std::string subject;  // the variant or group being counted
  const auto end_subject = [&] {
    if (of_subject.all && !arguments.quiet)
      out.print("{:<60} {:>3} of {:>3}  {:6.2f} s\n", subject, of_subject.held, of_subject.all,
                of_subject.seconds);
    flush_stdout();
    of_subject = {};
  };
  attention::ConformanceOptions how{.checks = arguments.checks};
  how.on_result = [&](const CheckResult& result) {
    total.add(result);
    if (result.variant != subject) end_subject();
    subject = result.variant;
    of_subject.add(result);
    results.push_back({{"variant", result.variant},
                       {"check", result.check},
                       {"passed", result.passed()},
                       {"failures", result.failures},
                       {"measured", result.measured},
                       {"seconds", json_number(result.seconds)}});
    for (const std::string& failure : result.failures)
      out.print("FAILED {} / {}: {}\n", result.variant, result.check, failure);
    if (result.passed() && arguments.verbose && !result.measured.empty())
      out.print("  {} / {}: {}\n", result.variant, result.check, result.measured);
  };
  std::vector<std::string> notes;
  for (const std::string& variant : variants) {
    if (const std::string note = attention::not_checked(variant); !note.empty())
      notes.push_back(note);
    if (arguments.set.empty())
      attention::check_conformance(variant, how);
    else
      attention::check_invariants(variant, options, how);
    end_subject();
  }
  return out.add("passed", total.held)
      .add("checks_run", total.all)
      .add("seconds", total.seconds)
      .add("checks", results)
      .add("notes", notes)
      .text("{passed} of {checks_run} checks passed, {seconds:.1f} s\n")
      .each("notes", "note: {}\n")
      .end(total.held == total.all ? success : failure);
}

}  // namespace

void add_check(Command& program) {
  auto [c, a] = program.command<CheckArguments>("check attention", check_attention);
  c.add("--variant", a->variants).repeated();
  c.add("--check", a->checks).repeated();
  c.flag("--list", a->list);
  c.flag("-v,--verbose", a->verbose);
  c.common(*a, "set quiet threads json");
}

}  // namespace longhand::cli
