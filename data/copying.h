// Shared by the tasks copy and selective_copy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {

/// Examples of `length` tokens: `count` symbols among blanks, a delimiter, and `count` blanks whose
/// targets are the symbols, in order; all other targets are ignored. Tokens: 0 is the blank,
/// 1 … symbols the symbols, symbols + 1 the delimiter. Without `scattered` the symbols come first,
/// followed by the blanks; with it every choice of positions before the delimiter is equally likely.
/// Lists of lengths and counts describe a mixture, one segment for each.
struct CopyOptions {
  std::vector<int64_t> length{64}, count{16};
  int64_t symbols = 8;
  MixtureSizes sizes{{100000}, {2000}, {2000}};
  bool scattered = false;  // set by the task, not an option

  void describe(OptionVisitor& v);
  size_t segments() const { return segments_of({length, count}, sizes); }
  DataMemory memory() const { return sizes.memory(segments()); }
};
std::optional<TaskInfo> copying_info(const CopyOptions& options);
Task make_copying(const CopyOptions& options, uint64_t seed, const Splits& splits = {});

}  // namespace longhand::data
