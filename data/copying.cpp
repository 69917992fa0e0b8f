#include "longhand/data/copying.h"

#include <algorithm>

#include "longhand/data/generated.h"

namespace longhand::data {

void CopyOptions::describe(OptionVisitor& v) {
  v.integer("length", length, {3, 1 << 24}, "tokens per example");
  v.integer("count", count, {1}, "number of symbols to copy");
  v.integer("symbols", symbols, {1, 1 << 24}, "number of different symbols");
  v.require(count <= (length - 1) / 2, "count",
            concat_message("expected 2 count + 1 <= length = ", length));
  sizes.describe(v);
}

std::optional<TaskInfo> copying_info(const CopyOptions& o) {
  return TaskInfo{.vocabulary = o.symbols + 2,
                  .classes = o.symbols + 2,
                  .per_token = true,
                  .max_length = o.length};
}

Task make_copying(const CopyOptions& o, uint64_t seed, const Splits&) {
  const auto draw = [count = o.count, symbols = o.symbols, scattered = o.scattered](
                        RandomStream& random, std::span<int32_t> tokens,
                        std::span<int32_t> targets) {
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
  return make_generated(*copying_info(o), o.sizes, seed, draw);
}

}  // namespace longhand::data
