// Headline: what the scores of several seeds say of which variant is best at a task, and no more.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "longhand/core/statistics.h"

namespace longhand::train {

/// The scores of a variant by seed.
using SeedScores = std::map<int64_t, double>;

std::vector<double> values_of(const SeedScores& scores);

/// The mean over seeds, of accuracies with accuracy_of_seeds(), of losses with an interval that is cut at 0. With the
/// number of test examples, which all seeds share, the interval of an accuracy m includes that these are a sample:
/// the variance of one is at most m (1 - m).
Estimate mean_of(const SeedScores& scores, bool accuracy, int64_t examples = 0);

/// The test of a against b, over the seeds that both have.
PairedTest paired_by_seed(const SeedScores& a, const SeedScores& b, bool accuracy);

/// A quantity that compares variants.
struct Metric {
  std::string name = "accuracy";  // "bits per byte", "loss"
  bool test = false;              // of the test split, else of the validation split

  bool is_accuracy() const { return name == "accuracy"; }
  bool better(double a, double b) const { return is_accuracy() ? a > b : a < b; }
  std::string heading() const { return (test ? "test " : "validation ") + name; }
  const char* article() const { return name == "bits per byte" ? "" : "a "; }
};

/// Below it, a p is taken for more than chance.
constexpr double significance = 0.05;

/// A variant with its scores at one task.
struct Contender {
  std::string name;
  SeedScores scores;
  size_t row = 0;                    // of it in a table
  int64_t examples = 0;              // see mean_of()
  std::string family{};              // RowNames::family
  double validation = std::nan("");  // its mean over seeds
};

/// What is said of a task: the best variant, or those that the seeds do not tell apart.
struct Verdict {
  std::string sentence;
  std::vector<std::string> best;  // the first, and all that are not told apart from it
};

/// Two variants are told apart if p < 0.05 in a paired t test, seed by seed, corrected for the number of variants
/// that the first is compared with (Holm). Where some seeds of one of them solve the task and others do not,
/// Fisher's exact test of the numbers that solved it takes its place. `where` ends the name of the metric: "", or " at copy".
Verdict verdict(const Metric& metric, const std::vector<Contender>& contenders,
                const std::string& where);

/// A sentence on several tasks: which variant is among the best at most of them.
std::string over_tasks(const std::vector<Verdict>& verdicts);

/// A task with the variants that were trained for it.
struct TaskScores {
  std::string name;
  Metric metric{};
  std::vector<Contender> contenders{};
};

/// What is said of all tasks, and the rows that a table prints in bold: the best of each task, where seeds tell
/// them from another one. Of contenders of a family, which differ in the learning rate alone, only the one that is
/// best on the validation split is compared with those of other families: the rest are left out.
struct Headline {
  std::vector<std::string> sentences{};
  std::set<size_t> best{}, left_out{};
};
Headline headline(std::vector<TaskScores> tasks);

/// Three digits, or more where these would make 0 or 1 of another number.
std::string rounded(double value);

/// Names for rows that differ in the values of keys such as "data.task": of the task, from the keys that
/// begin with "data.", and of the variant, from all others. A value that follows from those before it has no
/// part in a name.
struct RowNames {
  std::vector<std::string> task, variant, family;  // family: the variant but for "optimizer.lr"
};
RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows);

/// The same, with the labels of variants for names if there is one task, or where a task has a name twice.
RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows,
                   const std::vector<std::string>& labels);

}  // namespace longhand::train
