#include "longhand/data/copying.h"

#include <algorithm>

namespace longhand::data {

void CopyOptions::describe(OptionVisitor& v) {
  v.integers("length", length, {3, 1 << 24}, "tokens per example; a list: of each segment");
  v.integers("count", count, {1, 1 << 23}, "number of symbols to copy; a list: of each segment");
  v.integer("symbols", symbols, {1, 1 << 24}, "number of different symbols");
  sizes.describe(v);
  const size_t all = segments();
  require_one_or_each(v, "length", length, all);
  require_one_or_each(v, "count", count, all);
  require_one_or_each(v, sizes, all);
  for (size_t s = 0; s < std::max(length.size(), count.size()); ++s) {
    const int64_t n = length[std::min(s, length.size() - 1)];
    v.require(count[std::min(s, count.size() - 1)] <= (n - 1) / 2, "count",
              concat_message("expected 2 count + 1 <= length = ", n));
  }
}

std::optional<TaskInfo> copying_info(const CopyOptions& o) {
  return TaskInfo{.vocabulary = o.symbols + 2,
                  .classes = o.symbols + 2,
                  .per_token = true,
                  .max_length = *std::max_element(o.length.begin(), o.length.end())};
}

Task make_copying(const CopyOptions& o, uint64_t seed, const Splits&) {
  const auto draw_of = [&](int64_t count) {
    return [count, symbols = o.symbols, scattered = o.scattered](
               RandomStream& random, std::span<int32_t> tokens, std::span<int32_t> targets) {
      const int64_t n = static_cast<int64_t>(tokens.size());
      const int64_t places = n - count - 1;
      std::fill(tokens.begin(), tokens.end(), 0);
      std::fill(targets.begin(), targets.end(), ignore_index);
      tokens[places] = static_cast<int32_t>(symbols + 1);
      int64_t done = 0;
      for (int64_t i = 0; done < count; ++i) {
        // Selection sampling: every choice of `count` positions is equally likely.
        if (scattered && static_cast<int64_t>(random.below(places - i)) >= count - done) continue;
        tokens[i] = static_cast<int32_t>(1 + random.below(symbols));
        targets[places + 1 + done++] = tokens[i];
      }
    };
  };
  std::vector<GeneratedSegment> segments;
  for (size_t s = 0; s < o.segments(); ++s) {
    const int64_t length = of_segment(o.length, s), count = of_segment(o.count, s);
    segments.push_back({concat_message("length ", length, ", ", count, " symbols"), length,
                        of_segment(o.sizes, s), draw_of(count)});
  }
  return make_generated(*copying_info(o), segments, seed);
}

}  // namespace longhand::data
