// Heuristics: shortcut baselines, which answer a task without reading all of it. A model that is
// not better than these has not learned what the task asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "longhand/core/statistics.h"
#include "longhand/data/dataset.h"

namespace longhand::data {

/// Targets, and the expected number of those answered correctly.
struct Accuracy {
  int64_t targets = 0;
  double correct = 0;

  /// The fraction, with its 95 % interval (Wilson).
  Estimate value() const { return proportion(correct, targets); }
  void add(double probability) {
    ++targets;
    correct += probability;
  }
};

/// Accuracies of one predictor: over all targets, and by properties of examples or targets, such as
/// by_group["root operator"]["MAX"].
struct Accuracies {
  Accuracy all;
  std::map<std::string, std::map<std::string, Accuracy>> by_group;
};

/// A predictor: the probability that it answers each target of a batch correctly, in row-major
/// order of the targets that are not ignored; 0 or 1 if it is deterministic.
using Scores = std::function<std::vector<double>(const Batch&)>;

/// Scores of a predictor on a dataset of the task. Groups are, for
///
///   listops         "root operator", "length"
///   mqar            "distance" from a key to its query, "pairs" of the example
///   mqar_stacked    "distance" from the key's latest pair to its query, "pairs so far"
///   mqar_overwrite  that "distance", "values of the key": how often it was written
///   induction       "distance" from one marker to the other
///   others          "length" of the sequence, or "position" of the target
///
/// with lengths, distances and positions in ranges such as "64 to 127". `limit`: only the first
/// examples; 0: all.
Accuracies accuracies(const TaskInfo& task, const Dataset& dataset, const Scores& scores,
                      int64_t limit = 0);

/// A predictor learned from training data that looks at one property only.
struct Heuristic {
  std::string name;   // "root operator"
  std::string reads;  // what it looks at: "the first token"
  Accuracies accuracies;
};
struct HeuristicOptions {
  std::string split = "test";
  int64_t train_limit = 0, limit = 0;  // first examples to learn from and to answer; 0: all
  /// Called with the number of heuristics measured and their total.
  std::function<void(int64_t done, int64_t all)> on_progress{};
};
/// The heuristics of a task, ordered by how much they read:
///
///   majority         the most frequent class
///   length           the most frequent class of sequences of similar length
///   first token      the most frequent class after the same first token (listops: the root operator)
///   bag of tokens    naive Bayes over token counts, which ignore the order (of bytes in texts)
///   current token    the most frequent target of the same token, for tasks with a target per token
///   values shown     mqar, mqar_stacked, mqar_overwrite: a random value of the example (of those
///                    so far), whatever its key
///   first value      mqar_overwrite: the first value of the key, as if it were never overwritten
///   any value        mqar_overwrite: a random value of the key
///   tokens shown     copy, selective_copy, induction: a random token before the target
///   last bits        parity: the most frequent target after the same 8 bits
///
/// Throws Error unless the task has a training split and the split to answer.
std::vector<Heuristic> heuristics(const Task& task, const HeuristicOptions& options = {});

}  // namespace longhand::data
