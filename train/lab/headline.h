// Headline: what the scores of several seeds say about the best variant at a task, and no more.
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

/// Returns the mean over seeds: accuracies by accuracy_of_seeds(), losses with an interval cut off
/// at 0. Given the number of test examples, shared by all seeds, the interval of an accuracy m
/// includes their sampling error: the variance of one example is at most m (1 - m).
Estimate mean_of(const SeedScores& scores, bool accuracy, int64_t examples = 0);

/// Tests a against b, over their common seeds.
PairedTest paired_by_seed(const SeedScores& a, const SeedScores& b, bool accuracy);

/// A quantity that compares variants.
struct Metric {
  std::string name = "accuracy";  // "bits per byte", "loss"
  bool test = false;              // on the test split, else on the validation split

  bool is_accuracy() const { return name == "accuracy"; }
  bool better(double a, double b) const { return is_accuracy() ? a > b : a < b; }
  std::string heading() const { return (test ? "test " : "validation ") + name; }
  const char* article() const { return name == "bits per byte" ? "" : "a "; }
};

/// The significance level: smaller p values are not attributed to chance.
constexpr double significance = 0.05;

/// A variant with its scores on one task.
struct Contender {
  std::string name;
  SeedScores scores;
  size_t row = 0;                    // its row in a table
  int64_t examples = 0;              // see mean_of()
  std::string family{};              // RowNames::family
  double validation = std::nan("");  // mean over seeds
};

/// The conclusion for a task: the best variant, or those that the seeds cannot distinguish.
struct Verdict {
  std::string sentence;
  std::vector<std::string> best;  // the first, and all that are not distinguished from it
};

/// Two variants are distinguished if p < 0.05 in a paired t test by seed, corrected for the number
/// of variants compared with the first (Holm). If only some seeds of one of them solve the task,
/// Fisher's exact test replaces it. `where` ends the metric's name: "", or " at copy".
Verdict verdict(const Metric& metric, const std::vector<Contender>& contenders,
                const std::string& where);

/// Returns a sentence on several tasks: which variant is among the best at most of them.
std::string over_tasks(const std::vector<Verdict>& verdicts);

/// A task with the variants trained on it.
struct TaskScores {
  std::string name;
  Metric metric{};
  std::vector<Contender> contenders{};
};

/// The conclusions for all tasks, and the rows printed in bold: the best of each task, where seeds
/// distinguish them from another. Of a family's contenders, which differ only in the learning rate,
/// only the one best on the validation split is compared with other families: the rest are omitted.
struct Headline {
  std::vector<std::string> sentences{};
  std::set<size_t> best{}, left_out{};
};
Headline headline(std::vector<TaskScores> tasks);

/// Formats with three digits, or more if these would turn another number into 0 or 1.
std::string rounded(double value);

/// Names for rows that differ in the values of keys such as "data.task": the task's from keys that
/// begin with "data.", the variant's from all others. A value that follows from earlier ones is
/// left out of a name, and so is one of "data." that all rows with this "data.task" have.
struct RowNames {
  std::vector<std::string> task, variant, family;  // family: the variant without "optimizer.lr"
};
RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows);

/// Likewise, but named by variant labels if there is one task, or where a task has a name twice.
RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows,
                   const std::vector<std::string>& labels);

}  // namespace longhand::train
