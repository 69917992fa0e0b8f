#include "longhand/data/copying.h"

#include <algorithm>

#include "longhand/data/generated.h"

namespace longhand::data {

Task make_copying(const Options& options, uint64_t seed, const CopyDefaults& otherwise,
                  bool scattered) {
  const SplitSizes sizes = read_sizes(options, {100000, 2000, 2000});
  const int64_t length = options.get_int("length", otherwise.length, 3, 1 << 24);
  const int64_t count = options.get_int("count", otherwise.count, 1);
  const int64_t symbols = options.get_int("symbols", otherwise.symbols, 1, 1 << 24);
  options.require(count <= (length - 1) / 2, "count",
                  concat_message("2 count + 1 <= length is wanted; length is ", length));

  const auto draw = [count, symbols, scattered](RandomStream& random, std::span<int32_t> tokens,
                                                std::span<int32_t> targets) {
    const int64_t n = static_cast<int64_t>(tokens.size());
    const int64_t places = n - count - 1;
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), ignore_index);
    tokens[places] = static_cast<int32_t>(symbols + 1);
    int64_t done = 0;
    for (int64_t i = 0; done < count; ++i) {
      // Selection sampling: every choice of `count` places is equally likely.
      if (scattered && static_cast<int64_t>(random.below(places - i)) >= count - done) continue;
      tokens[i] = static_cast<int32_t>(1 + random.below(symbols));
      targets[places + 1 + done++] = tokens[i];
    }
  };
  const TaskInfo info{
      .vocabulary = symbols + 2, .classes = symbols + 2, .per_token = true, .max_length = length};
  return make_generated(info, sizes, seed, draw);
}

}  // namespace longhand::data
