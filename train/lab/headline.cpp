#include "longhand/train/lab/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/hypergeometric.hpp>
#include <limits>

#include "longhand/train/lab/columns.h"
#include "longhand/train/results/table.h"

namespace longhand::train {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double mean_of_scores(const Contender& contender) {
  return estimate(values_of(contender.scores)).mean;
}

std::string interval(const Metric& metric, const Contender& contender) {
  const Estimate score = mean_of(contender.scores, metric.is_accuracy(), contender.examples);
  if (score.count < 2) return " (1 seed)";
  if (std::isnan(score.low))
    return fmt::format(" ({})", without_interval(values_of(contender.scores)));
  return fmt::format(" (95 % interval {} to {}, {} seeds)", rounded(score.low), rounded(score.high),
                     score.count);
}

/// Fisher's exact test, two-sided, for a successes among n and b among m.
double fisher(size_t a, size_t n, size_t b, size_t m) {
  const boost::math::hypergeometric among_n(static_cast<unsigned>(a + b), static_cast<unsigned>(n),
                                            static_cast<unsigned>(n + m));
  const double most = pdf(among_n, a) * (1 + 1e-9);
  double p = 0;
  const auto [first, last] = support(among_n);
  for (auto each = first; each <= last; ++each)
    if (const double probability = pdf(among_n, each); probability <= most) p += probability;
  return std::min(p, 1.0);
}

/// The lead of the best variant over another one.
struct Lead {
  Estimate difference;  // by seed, positive where the best is better
  double p = nan;
  std::string solved{};  // how many seeds of each reach what others miss
};

size_t number_above(const SeedScores& scores, double bound) {
  return static_cast<size_t>(
      std::ranges::count_if(scores, [&](const auto& each) { return each.second > bound; }));
}

Lead lead_of(const Metric& metric, const Contender& best, const Contender& other) {
  const bool accuracy = metric.is_accuracy();
  const PairedTest test = accuracy ? paired_by_seed(best.scores, other.scores, false)
                                   : paired_by_seed(other.scores, best.scores, false);
  Lead lead{test.difference, test.p};
  const bool in_groups = two_groups(values_of(best.scores)) || two_groups(values_of(other.scores));
  if (!accuracy || (!std::isnan(test.p) && !in_groups)) return lead;
  lead.difference.low = lead.difference.high = nan;  // for seeds in two groups, or all equal
  std::vector<double> all = values_of(best.scores);
  for (const double value : values_of(other.scores)) all.push_back(value);
  if (best.scores.size() < 2 || other.scores.size() < 2) return lead;
  std::ranges::sort(all);
  const size_t gap = largest_gap(all);  // separates those that solved the task from the others
  if (all[gap] - all[gap - 1] < group_gap) return lead;
  const double bound = (all[gap] + all[gap - 1]) / 2;
  const size_t own = number_above(best.scores, bound), theirs = number_above(other.scores, bound);
  lead.p = fisher(own, best.scores.size(), theirs, other.scores.size());
  lead.solved =
      fmt::format("{} {} with {} of {} seeds, {} with {} of {} (Fisher's exact test: p = {:.2g})",
                  best.name, all[gap] >= solved_from ? "solves it" : "reaches " + rounded(all[gap]),
                  own, best.scores.size(), other.name, theirs, other.scores.size(), lead.p);
  return lead;
}

std::string difference_text(const Estimate& difference) {
  return fmt::format("95 % interval of the difference, seed by seed: {} to {}",
                     rounded(difference.low), rounded(difference.high));
}

/// Returns why the best is not distinguished from its runner-up.
std::string reason(const Lead& lead, size_t compared) {
  if (lead.difference.count < 2)
    return "With one seed in common, chance is not excluded: train more seeds.";
  if (std::isnan(lead.difference.low))
    return lead.solved.empty()
               ? "So few seeds, whose differences are equal or whose scores lie far apart in two "
                 "groups, give no interval: train more seeds."
               : lead.solved + ": train more seeds.";
  if (lead.difference.low <= 0)
    return fmt::format("The {} includes 0, so that their order may be chance.",
                       difference_text(lead.difference));
  return fmt::format("The {} excludes 0, but not once it is corrected for {} comparisons.",
                     difference_text(lead.difference), compared);
}

}  // namespace

std::vector<double> values_of(const SeedScores& scores) {
  std::vector<double> out;
  for (const auto& [seed, value] : scores) out.push_back(value);
  return out;
}

Estimate mean_of(const SeedScores& scores, bool accuracy, int64_t examples) {
  if (!accuracy) {
    Estimate out = estimate(values_of(scores));
    if (std::ranges::all_of(scores, [](const auto& each) { return each.second >= 0; }))
      out.low = std::max(out.low, 0.0);
    return out;
  }
  Estimate out = accuracy_of_seeds(values_of(scores));
  if (examples == 0 || std::isnan(out.low)) return out;
  const double sampled =
      1.96 * std::sqrt(out.mean * (1 - out.mean) / static_cast<double>(examples));
  out.low = std::max(0.0, out.mean - std::hypot(out.mean - out.low, sampled));
  out.high = std::min(1.0, out.mean + std::hypot(out.high - out.mean, sampled));
  return out;
}

PairedTest paired_by_seed(const SeedScores& a, const SeedScores& b, bool accuracy) {
  std::vector<double> x, y;
  for (const auto& [seed, value] : a)
    if (const auto other = b.find(seed); other != b.end()) {
      x.push_back(value);
      y.push_back(other->second);
    }
  return accuracy ? paired_test_of_seeds(x, y) : paired_test(x, y);
}

std::string rounded(double value) {
  std::string text;
  for (int digits = 3; digits <= 9; ++digits) {
    text = fmt::format("{:.{}g}", value, digits);
    const double shown = std::stod(text);
    if (shown == value || (shown != 0 && std::abs(shown) != 1)) break;
  }
  return text;
}

Verdict verdict(const Metric& metric, const std::vector<Contender>& contenders,
                const std::string& where) {
  std::vector<const Contender*> ranked;
  for (const Contender& each : contenders)
    if (!each.scores.empty()) ranked.push_back(&each);
  std::ranges::stable_sort(ranked, [&](const Contender* a, const Contender* b) {
    return metric.better(mean_of_scores(*a), mean_of_scores(*b));
  });
  if (ranked.empty()) return {fmt::format("No run{} has been evaluated yet.", where), {}};
  const Contender& best = *ranked[0];
  const std::string score = rounded(mean_of_scores(best));
  const std::string reached = fmt::format("{}{} of {}{}", metric.article(), metric.heading(), score,
                                          interval(metric, best));
  Verdict out{"", {best.name}};
  if (ranked.size() == 1) {
    out.sentence = fmt::format("{} reaches {}{}.", best.name, reached, where);
    if (best.scores.size() == 1) out.sentence += " With one seed, chance is not excluded.";
    return out;
  }
  std::vector<Lead> leads;
  std::vector<double> p;
  for (size_t i = 1; i < ranked.size(); ++i) {
    leads.push_back(lead_of(metric, best, *ranked[i]));
    p.push_back(leads.back().p);
  }
  p = holm(p);
  std::vector<std::string> equal = {best.name};  // exactly as good, with every seed
  for (size_t i = 1; i < ranked.size(); ++i) {
    if (p[i - 1] < significance) continue;
    out.best.push_back(ranked[i]->name);
    if (values_of(ranked[i]->scores) == values_of(best.scores)) equal.push_back(ranked[i]->name);
  }
  const Contender& next = *ranked[1];
  const double ahead = std::abs(mean_of_scores(best) - mean_of_scores(next));
  const char* const side = metric.is_accuracy() ? "above" : "below";
  if (out.best.size() == 1) {
    out.sentence = fmt::format("{} is the best of {} variants{}, with {}, {} {} {}", best.name,
                               ranked.size(), where, reached, rounded(ahead), side, next.name);
    if (std::isnan(leads[0].difference.low))
      out.sentence.append(". ").append(leads[0].solved).append(".");
    else
      out.sentence +=
          fmt::format(" ({}). The interval excludes 0.", difference_text(leads[0].difference));
    return out;
  }
  const bool one_seed = leads[0].difference.count < 2;
  if (equal.size() > 1) {
    out.sentence = fmt::format("{} tie{} for the best of {} variants, with {}.", listed(equal),
                               where, ranked.size(), reached);
    if (equal.size() < out.best.size())
      out.sentence += fmt::format(" {} not told apart from them.",
                                  out.best.size() - equal.size() == 1
                                      ? "1 more is"
                                      : fmt::format("{} more are", out.best.size() - equal.size()));
    if (one_seed) out.sentence.append(" ").append(reason(leads[0], leads.size()));
    return out;
  }
  if (one_seed) {
    out.sentence = fmt::format("{} has the {} {} of {} variants{}: {}{}, {} {} {}. {}", best.name,
                               metric.is_accuracy() ? "highest" : "lowest", metric.heading(),
                               ranked.size(), where, score, interval(metric, best), rounded(ahead),
                               side, next.name, reason(leads[0], leads.size()));
    return out;
  }
  // The nearest of those not distinguished from the best, which need not be the next.
  size_t near = 0;
  while (p[near] < significance) ++near;
  const std::vector<std::string> others(out.best.begin() + 1, out.best.end());
  out.sentence = fmt::format(
      "No winner among {} variants{}: {}, with {}, is not told apart from {}. {}", ranked.size(),
      where, best.name, reached, listed(others), reason(leads[near], leads.size()));
  return out;
}

std::string over_tasks(const std::vector<Verdict>& verdicts) {
  std::map<std::string, size_t> counts;
  for (const Verdict& each : verdicts)
    for (const std::string& name : each.best) ++counts[name];
  size_t most = 0;
  for (const auto& [name, count] : counts) most = std::max(most, count);
  std::vector<std::string> often;
  for (const auto& [name, count] : counts)
    if (count == most) often.push_back(name);
  if (often.empty()) return fmt::format("{} tasks, none evaluated yet.", verdicts.size());
  const std::string where =
      most == verdicts.size() ? "all of them" : fmt::format("{} of them", most);
  constexpr size_t most_names = 3;
  if (often.size() > most_names)
    return fmt::format(
        "{} tasks: with these seeds no variant stands out; {} are the best, or not told apart from "
        "the best, at {}.",
        verdicts.size(), often.size(), where);
  return fmt::format("{} tasks: {} {} the best, or not told apart from the best, at {}.",
                     verdicts.size(), listed(often), often.size() == 1 ? "is" : "are", where);
}

namespace {

/// Removes from contenders the rates that validation did not choose, and returns their rows. None
/// if all are of one family, whose rates are compared, or if validation scores are unknown.
std::set<size_t> take_rates(const Metric& metric, std::vector<Contender>& contenders) {
  std::map<std::string, const Contender*> chosen;
  for (const Contender& each : contenders) {
    const Contender*& best = chosen.try_emplace(each.family, &each).first->second;
    if (std::isnan(best->validation) || metric.better(each.validation, best->validation))
      best = &each;
  }
  std::set<size_t> out;
  if (chosen.size() < 2) return out;
  for (const Contender& each : contenders)
    if (const Contender* const best = chosen.at(each.family);
        best != &each && !std::isnan(best->validation))
      out.insert(each.row);
  std::erase_if(contenders, [&](const Contender& each) { return out.contains(each.row); });
  return out;
}

}  // namespace

Headline headline(std::vector<TaskScores> tasks) {
  constexpr size_t most = 12;
  Headline out;
  std::vector<Verdict> verdicts;
  std::set<std::string> names;  // of contenders with a score
  for (auto& [name, metric, contenders] : tasks) out.left_out.merge(take_rates(metric, contenders));
  for (auto& [name, metric, contenders] : tasks) {
    for (Contender& each : contenders) {
      if (tasks.size() > 1 && !out.left_out.empty() && !std::isnan(each.validation))
        each.name = each.family;  // valid at each task
      if (!each.scores.empty()) names.insert(each.name);
    }
    verdicts.push_back(verdict(metric, contenders, tasks.size() == 1 ? "" : " at " + name));
    const std::vector<std::string>& best = verdicts.back().best;
    const auto scored = std::ranges::count_if(
        contenders, [](const Contender& each) { return !each.scores.empty(); });
    for (const Contender& each : contenders)
      if (std::ssize(best) < scored && std::ranges::count(best, each.name))
        out.best.insert(each.row);
  }
  if (tasks.size() > 1)
    out.sentences.push_back(names.size() != 1 ? over_tasks(verdicts)
                                              : fmt::format("{} tasks: only {} has been evaluated.",
                                                            tasks.size(), *names.begin()));
  if (tasks.size() > 1 && names.empty()) return out;
  for (size_t t = 0; t < std::min(most, tasks.size()); ++t)
    out.sentences.push_back(verdicts[t].sentence);
  if (tasks.size() > most)
    out.sentences.push_back(fmt::format("The table has {} more tasks.", tasks.size() - most));
  if (!out.left_out.empty())
    out.sentences.push_back(
        "Each variant has the learning rate that is best on the validation split.");
  return out;
}

// ----------------------------------------------------------------------------------------------
// Names.

namespace {

using Values = std::vector<std::string>;  // of a key, by row

std::map<std::string, std::set<std::string>> by_name(const Values& names, const Values& values) {
  std::map<std::string, std::set<std::string>> out;
  for (size_t r = 0; r < names.size(); ++r) out[names[r]].insert(values[r]);
  return out;
}

/// Adds the values of a key that do not follow from the names so far.
void extend(Values& names, const std::string& key, const Values& values, bool bare) {
  const auto found = by_name(names, values);
  const bool follows =
      std::ranges::all_of(found, [](const auto& each) { return each.second.size() == 1; });
  if (follows && !(bare && found.size() == 1 && names[0].empty())) return;
  for (size_t r = 0; r < names.size(); ++r) {
    if (values[r].empty()) continue;
    if (!names[r].empty()) names[r] += ' ';
    names[r] += bare ? values[r] : key.substr(key.find('.') + 1) + "=" + values[r];
  }
}

}  // namespace

RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows) {
  RowNames out{Values(rows.size()), Values(rows.size()), Values(rows.size())};
  std::map<std::string, Values> values;
  for (size_t r = 0; r < rows.size(); ++r)
    for (const auto& [key, value] : rows[r])
      values.try_emplace(key, rows.size()).first->second[r] = value;
  const auto add = [&](Values& names, const std::string& key, bool bare) {
    if (const auto found = values.find(key); found != values.end())
      extend(names, key, found->second, bare);
  };
  add(out.task, "data.task", true);
  const Values types = out.task;
  for (auto [key, of_key] : values) {
    if (!key.starts_with("data.") || key == "data.task") continue;
    const auto of_type = by_name(types, of_key);  // one value distinguishes nothing
    for (size_t r = 0; r < rows.size(); ++r)
      if (of_type.at(types[r]).size() == 1) of_key[r].clear();
    extend(out.task, key, of_key, false);
  }
  add(out.variant, "attention.type", true);
  out.family = out.variant;
  for (const auto& [key, of_key] : values) {
    if (key.starts_with("data.") || key == "attention.type") continue;
    Values determined = out.task;  // such as the steps that a task needs
    extend(determined, key, of_key, false);
    if (determined == out.task) continue;
    extend(out.variant, key, of_key, false);
    if (key != "optimizer.lr") extend(out.family, key, of_key, false);
  }
  return out;
}

RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows,
                   const std::vector<std::string>& labels) {
  RowNames out = row_names(rows);
  const bool one = std::set(out.task.begin(), out.task.end()).size() < 2;
  std::map<std::pair<std::string, std::string>, int> counts;
  for (size_t r = 0; r < rows.size(); ++r) ++counts[{out.task[r], out.variant[r]}];
  for (size_t r = 0; r < rows.size(); ++r) {
    if (!one && counts.at({out.task[r], out.variant[r]}) == 1) continue;
    const bool has_task = !one && labels[r].starts_with(out.task[r] + " ");
    out.variant[r] = has_task ? labels[r].substr(out.task[r].size() + 1) : labels[r];
  }
  return out;
}

}  // namespace longhand::train
