// Tasks whose examples are generated on demand and never stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/core/schema.h"
#include "longhand/data/dataset.h"
#include "longhand/data/split.h"

namespace longhand::data {

/// Draws an example: sets every token and every target, from the stream alone. Called from several
/// threads at once.
using Draw = std::function<void(RandomStream& random, std::span<int32_t> tokens,
                                std::span<int32_t> targets)>;

/// A part of a mixture: examples that are drawn in the same way.
struct GeneratedSegment {
  std::string name;
  int64_t length = 0;  // tokens of an example, or of the longest
  SplitSizes sizes;
  Draw draw;
  Draw draw_unseen{};  // examples of validation and test; null: as in training
  /// Draws the number of tokens of an example; null: it is `length`.
  std::function<int64_t(RandomStream& random)> draw_length{};
  int64_t shared_below = 0;  // shorter examples may be in several splits: there are too few
};

/// Returns a task of examples with one target for each token, segment after segment. Example i of a
/// segment depends on (seed, split, index of the segment, i) alone. It is drawn again until the
/// hash of its tokens falls in the split's share of all hashes (training one half, validation and
/// test a quarter each). No example is therefore in two splits, however few different ones there
/// are, except those below GeneratedSegment::shared_below tokens. Throws ConfigError if there are
/// so few that a split of a segment has none.
Task make_generated(const TaskInfo& info, const std::vector<GeneratedSegment>& segments,
                    uint64_t seed);

/// The options train_size, validation_size and test_size of a mixture: one number for all segments,
/// or one for each. 0: a split has no examples of the segment, for lengths that are only tested.
struct MixtureSizes {
  std::vector<int64_t> train, validation, test;

  void describe(OptionVisitor& v);
  /// The memory for `segments` segments, whose examples are never stored.
  DataMemory memory(size_t segments) const;
};

/// The value of an option for one segment, from a list of one value or one per segment.
int64_t of_segment(const std::vector<int64_t>& values, size_t segment);
SplitSizes of_segment(const MixtureSizes& sizes, size_t segment);

/// The number of segments that options describe: the longest of the lists and the sizes.
size_t segments_of(const std::vector<std::vector<int64_t>>& lists, const MixtureSizes& sizes);

/// Requires that each of the lists, options of these names, and the sizes have one value, or one
/// per segment.
void require_one_or_each(
    OptionVisitor& v, const std::vector<std::pair<const char*, const std::vector<int64_t>&>>& lists,
    const MixtureSizes& sizes);

/// The options of a task whose segments differ only in their lengths.
struct MixtureOfLengths {
  std::vector<int64_t> length;
  MixtureSizes sizes{{100000}, {2000}, {2000}};
  std::vector<int64_t> min_length{0};  // 0: length

  size_t segments() const { return segments_of({length, min_length}, sizes); }
  DataMemory memory() const { return sizes.memory(segments()); }
  int64_t max_length() const { return *std::ranges::max_element(length); }
  /// Draws the examples of all segments in the same way.
  Task make(const TaskInfo& info, const Draw& draw, uint64_t seed) const;
  /// The options length and min_length of a task whose lengths are drawn uniformly from min_length
  /// to length. `what` is counted.
  void describe_lengths(OptionVisitor& v, const std::string& what, int64_t least);
  /// `complete` sets how a segment's examples are drawn; its lengths are already set.
  Task make(
      const TaskInfo& info, uint64_t seed,
      const std::function<void(GeneratedSegment& segment, int64_t min_length)>& complete) const;
};

}  // namespace longhand::data
