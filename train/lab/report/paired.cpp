#include "longhand/train/lab/report/paired.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <system_error>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/headline.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

using Contenders = std::map<std::string, Contender>;  // by variant

/// Returns variants with finished cells; `order`: the variants in table order.
Contenders contenders_in(const Results& sweep, const std::string& metric,
                         std::vector<std::string>& order) {
  const Table& cells = sweep.table("cells");
  Contenders out;
  for (size_t r = 0; r < cells.rows.size(); ++r) {
    const double score = value_at(cells, r, cells.column("test_" + metric));
    if (text_at(cells, r, cells.column("phase")) != "final" || std::isnan(score)) continue;
    const std::string variant = text_at(cells, r, cells.column("variant"));
    if (!out.contains(variant)) order.push_back(variant);
    Contender& own = out[variant];
    own.scores[std::get<int64_t>(cells.rows[r][cells.column("seed")])] = score;
    const double examples = std::fmax(0, value_at(cells, r, cells.find("test_examples")));
    own.examples = std::max(own.examples, static_cast<int64_t>(examples));
  }
  return out;
}

/// Returns the scores of common seeds.
SeedScores in_common(const SeedScores& scores, const SeedScores& others) {
  SeedScores out;
  for (const auto& [seed, score] : scores)
    if (others.contains(seed)) out[seed] = score;
  return out;
}

}  // namespace

const ReportedResults& results_of_sweep(const ReportInputs& inputs, const fs::path& path) {
  std::error_code missing;
  for (const ReportedResults& each : inputs.results)
    if (each.results.kind == "ablate" &&
        (fs::equivalent(each.path, path, missing) ||
         fs::equivalent(fs::absolute(each.path).parent_path(), path, missing)))
      return each;
  throw ConfigError(path.string() +
                    ": no results of a sweep among the paths of this report; expected one of them: "
                    "the directory of a sweep, or its results.json");
}

Results paired_results(const ReportedResults& sweep, const ReportedResults& baseline) {
  const std::string metric = sweep.metric(), other_metric = baseline.metric();
  for (const ReportedResults* each : {&sweep, &baseline})
    check<ConfigError>(!each->metric().empty(), each->path, ": results of ", each->results.kind,
                       "; expected those of a sweep, written by ablate");
  check<ConfigError>(metric == other_metric, sweep.name(), " has the metric ", metric, ", and ",
                     baseline.name(), " ", other_metric, "; expected sweeps with the same one");
  std::vector<std::string> order, ignored;
  const Contenders theirs = contenders_in(baseline.results, metric, order),
                   ours = contenders_in(sweep.results, metric, ignored);
  std::erase_if(order, [&](const std::string& variant) {
    return !ours.contains(variant) ||
           in_common(ours.at(variant).scores, theirs.at(variant).scores).empty();
  });
  check<ConfigError>(!order.empty(), sweep.name(), " and ", baseline.name(),
                     " have no finished cell in common: none with the same values of all axes and "
                     "the same seed");
  const bool accuracy = metric == "accuracy";
  std::vector<PairedTest> tests;
  std::vector<double> p;
  for (const std::string& variant : order) {
    tests.push_back(paired_by_seed(ours.at(variant).scores, theirs.at(variant).scores, accuracy));
    p.push_back(tests.back().p);
  }
  p = holm(p);
  Table table{.name = "paired",
              .title = "Differences of " + sweep.name() + " from " + baseline.name()};
  table.note = fmt::format(
      "Over the seeds that both have, {} of the {} variants of the baseline. Differences are of "
      "cells with the same values of all axes and the same seed, with 95 % intervals (Student's "
      "t), and p of a paired t test, corrected for the number of variants (Holm). There is "
      "neither for one seed, where all differences are equal, or where few seeds solve the task "
      "and others do not.",
      order.size(), theirs.size());
  int64_t better = 0, worse = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Contender &own = ours.at(order[i]), &other = theirs.at(order[i]);
    const Estimate& difference = tests[i].difference;
    add_row(table,
            {{"variant", order[i]},
             {"seeds", difference.count},
             {"baseline", mean_of(in_common(other.scores, own.scores), accuracy, other.examples),
              "baseline " + metric},
             {metric, mean_of(in_common(own.scores, other.scores), accuracy, own.examples), metric},
             {"difference", difference, "difference"},
             {"p", known(p[i]), "", 2}});
    if (p[i] < significance) ++((difference.mean > 0) == accuracy ? better : worse);
  }
  add_bars(table, "Difference of " + metric + " by variant", "variant", "difference");
  return {.kind = "report",
          .title = sweep.name() + " against " + baseline.name(),
          .summary = fmt::format("Of {} variants that both have, {} are better than in {}, and {} "
                                 "worse (p < {}).",
                                 order.size(), better, baseline.name(), worse, significance),
          .tables = {std::move(table)}};
}

}  // namespace longhand::train
