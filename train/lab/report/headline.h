// Headline: what the scores of several seeds say of which variant is best at a task, and no more.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "longhand/train/lab/seeds.h"

namespace longhand::train {

/// A quantity that compares variants.
struct Metric {
  std::string name = "accuracy";  // "bits per byte", "loss"
  bool test = false;              // of the test split, else of the validation split

  bool is_accuracy() const { return name == "accuracy"; }
  bool better(double a, double b) const { return is_accuracy() ? a > b : a < b; }
  std::string heading() const { return (test ? "test " : "validation ") + name; }
};

/// A variant with its scores at one task.
struct Contender {
  std::string name;
  SeedScores scores;
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

/// Three digits, or more where these would make 0 or 1 of another number.
std::string rounded(double value);

/// A sentence on several tasks: which variant is among the best at most of them.
std::string over_tasks(const std::vector<Verdict>& verdicts);

/// Names for rows that differ in the values of keys such as "data.task": of the task, from the keys that
/// begin with "data.", and of the variant, from all others. A value that follows from those before it has no
/// part in a name.
struct RowNames {
  std::vector<std::string> task, variant;
};
RowNames row_names(const std::vector<std::map<std::string, std::string>>& rows);

}  // namespace longhand::train
