// Shared by the tasks mqar, mqar_stacked and mqar_overwrite.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {

/// Associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927): an example of `length` tokens
/// consists of `groups` parts of equal length, each of which starts with pairs of a key and a value.
/// After them keys occur again, where their value is the target; all other targets are ignored.
///
/// Let V be the vocabulary. Keys are 1 … V/2-1, values V/2 … V-1; no value occurs in two different pairs.
/// Without overwrites, each part has `pairs` new keys, which are repeated `passes` times; the first part
/// queries each of its keys once, part g `pairs` different keys of all g · pairs so far, each equally
/// likely. With overwrites, the first part has all keys, and each further part has `overwrites` pairs of
/// these keys, drawn with repetition, and new values, of which the latest counts; each part queries
/// every key once.
///
/// Positions without a query hold 0 or, with random_non_queries, random tokens that are no key of this
/// example. In mqar, these may be values; in the other tasks they may not, so that a key and the token
/// after it are a pair if that token is a value, and else the key is a query.
///
/// Lists of lengths, pairs and overwrites describe a mixture, one segment for each.
struct RecallOptions {
  std::vector<int64_t> length{64}, pairs{4}, overwrites{0};
  int64_t groups = 1, passes = 1;
  int64_t vocabulary = 8192;
  double power = 0.01;
  bool random_non_queries = false;
  bool causal = false;
  MixtureSizes sizes{{100000}, {3000}, {3000}};
  enum class Kind { plain, stacked, overwrite };
  Kind kind = Kind::plain;  // set by the task, not an option: decides which options it has

  void describe(OptionVisitor& v);
  size_t segments() const { return segments_of({length, pairs, overwrites}, sizes); }
  DataMemory memory() const { return sizes.memory(segments()); }

 private:
  void require_valid(OptionVisitor& v) const;
};
std::optional<TaskInfo> recall_info(const RecallOptions& options);
Task make_recall(const RecallOptions& options, uint64_t seed, const Splits& splits = {});

}  // namespace longhand::data
