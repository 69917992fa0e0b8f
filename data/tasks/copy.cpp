// copy: symbols, a pause and a delimiter, after which the symbols must be reproduced (Hochreiter &
// Schmidhuber 1997; as a test of long memory, Arjovsky et al. 2016, arXiv 1511.06464).
//
// selective_copy: the same, with the symbols scattered among blanks (Gu & Dao 2023, "Mamba",
// arXiv 2312.00752), so that which positions to read depends on their contents.
#include <algorithm>
#include <vector>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {
namespace {

/// Examples of `length` tokens: `count` symbols among blanks, a delimiter, and `count` blanks whose
/// targets are the symbols, in order; all other targets are ignored. Tokens: 0 is the blank, 1 …
/// symbols the symbols, symbols + 1 the delimiter. Without `scattered` the symbols come first,
/// followed by the blanks. With it, all choices of positions before the delimiter are equally
/// likely, or each blank precedes a symbol chosen uniformly (Poli et al. 2024, arXiv 2403.17844).
/// Lists of lengths and counts describe a mixture, one segment for each.
struct CopyOptions {
  std::vector<int64_t> length{64}, count{16};
  int64_t symbols = 8;
  MixtureSizes sizes{{100000}, {2000}, {2000}};
  bool scattered = false;  // set by the task, not an option
  std::string blanks = "anywhere";

  void describe(OptionVisitor& v) {
    v.integers("length", length, {3, 1 << 24}, "tokens per example; a list: of each segment");
    v.integers("count", count, {1, 1 << 23}, "number of symbols to copy; a list: of each segment");
    v.integer("symbols", symbols, {1, 1 << 24}, "number of different symbols");
    if (scattered)
      v.choice(
          "blanks", blanks, {"anywhere", "before_symbols"},
          "where blanks are: every choice of positions is equally likely, or each blank stands "
          "before one of the symbols, each equally likely, as in MAD (Poli et al. 2024)");
    sizes.describe(v);
    require_one_or_each(v, {{"length", length}, {"count", count}}, sizes);
    for (size_t s = 0; s < segments(); ++s) {
      const int64_t n = of_segment(length, s);
      v.require(of_segment(count, s) <= (n - 1) / 2, "count",
                concat_message("expected 2 count + 1 <= length = ", n));
    }
  }
  size_t segments() const { return segments_of({length, count}, sizes); }
  DataMemory memory() const { return sizes.memory(segments()); }
};

std::optional<TaskInfo> info_of(const CopyOptions& o) {
  return TaskInfo{.vocabulary = o.symbols + 2,
                  .classes = o.symbols + 2,
                  .per_token = true,
                  .max_length = *std::ranges::max_element(o.length)};
}

Task make(const CopyOptions& o, uint64_t seed, const Splits&) {
  const auto draw_of = [&](int64_t count) {
    return [count, symbols = o.symbols, scattered = o.scattered,
            before_symbols = o.blanks == "before_symbols"](
               RandomStream& random, std::span<int32_t> tokens, std::span<int32_t> targets) {
      const int64_t n = static_cast<int64_t>(tokens.size());
      const int64_t places = n - count - 1;
      std::ranges::fill(tokens, 0);
      std::ranges::fill(targets, ignore_index);
      tokens[places] = static_cast<int32_t>(symbols + 1);
      int64_t done = 0;
      if (before_symbols) {
        std::vector<int64_t> blanks(static_cast<size_t>(count));
        for (int64_t i = 0; i < places - count; ++i) ++blanks[random.below(count)];
        for (int64_t at = 0; done < count; ++at) {
          at += blanks[static_cast<size_t>(done)];
          tokens[at] = static_cast<int32_t>(1 + random.below(symbols));
          targets[places + 1 + done++] = tokens[at];
        }
      }
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
  return make_generated(*info_of(o), segments, seed);
}

}  // namespace

TaskSpec register_copy() {
  return make_spec<CopyOptions>("symbols at the start, to be written in order after a delimiter",
                                info_of, make);
}

TaskSpec register_selective_copy() {
  return make_spec<CopyOptions>(
      "symbols scattered among blanks, to be written in order after a delimiter", info_of, make,
      CopyOptions{.length = {256}, .count = {16}, .symbols = 16, .scattered = true});
}

}  // namespace longhand::data
