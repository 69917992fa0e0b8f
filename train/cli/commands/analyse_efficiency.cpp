// longhand analyse efficiency.
#include "longhand/train/analyse/analyse.h"
#include "longhand/train/cli/commands/commands.h"

namespace longhand::cli {
namespace {

namespace analyse = train::analyse;

struct AnalyseEfficiencyArguments : Common {
  analyse::EfficiencyOptions options;
  int64_t tokens = 4096;
  double seconds = 0.3;
};

/// Measured in a process of its own; nothing if it failed.
std::optional<train::Cost> measure(const AnalyseEfficiencyArguments& a,
                                   const analyse::PlannedCost& p, int& code) {
  std::vector<std::string> more = {"--model", a.options.model, "--seed",
                                   std::to_string(seed_or_default(a))};
  const auto set = [&](const std::string& assignment) {
    more.insert(more.end(), {"--set", "attention." + assignment});
  };
  if (!p.option.empty()) set(p.option + "=" + std::to_string(p.size));
  if (a.options.naive && p.attention == "softmax") set("impl=naive");
  const auto found = bench_in_child(a.options.what, {p.attention, p.length},
                                    std::max(a.tokens, p.length), a.seconds, more, code);
  if (!found) return {};
  const Json& json = *found;
  const double batch = json["batch"].get<double>();
  const auto of_one = [&](const char* key) { return json[key].get<double>() / batch; };
  return train::Cost{p.attention,
                     p.size,
                     p.length,
                     of_one("seconds"),
                     of_one("seconds_low"),
                     of_one("seconds_high"),
                     of_one("seconds_forward"),
                     of_one("allocated_bytes")};
}

int analyse_efficiency(const AnalyseEfficiencyArguments& a) {
  check<ConfigError>(a.options.what == "attention" || a.options.what == "step", "--what ",
                     a.options.what, ": expected attention or step");
  const std::vector<analyse::PlannedCost> planned = analyse::planned_costs(a.options);
  Progress progress(a.quiet || a.json, "analyse efficiency", 2);
  std::vector<train::Cost> costs;
  int worst = success;
  for (size_t i = 0; i < planned.size(); ++i) {
    const analyse::PlannedCost& p = planned[i];
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(planned.size()),
                    fmt::format("{}{} {}", p.attention,
                                p.size ? fmt::format(" {}={}", p.option, p.size) : "", p.length));
    int code = success;
    if (const auto cost = measure(a, p, code))
      costs.push_back(*cost);
    else if (code == usage_error)
      return code;
    else
      worst = failure;
  }
  progress.clear();
  check(!costs.empty(), "analyse efficiency: no measurement succeeded");
  const int code = finish(a, analyse::efficiency(a.options, costs));
  return worst == success ? code : worst;
}

}  // namespace

void add_analyse_efficiency(Command& group) {
  auto [c, a] = group.command<AnalyseEfficiencyArguments>("efficiency", analyse_efficiency);
  c.add("--what", a->options.what);
  c.add("--model", a->options.model);
  c.add("--attention", a->options.attention);
  c.add("--sizes", a->options.sizes).positive();
  c.add("--length", a->options.length).positive();
  c.add("--tokens", a->tokens).positive();
  c.add("--seconds", a->seconds).not_negative();
  c.flag("--naive", a->options.naive);
  c.common(*a, "results seed threads quiet json");
}

}  // namespace longhand::cli
