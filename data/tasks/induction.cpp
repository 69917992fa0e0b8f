// induction: a marker among random symbols, and again at the end, where the symbol that followed it
// is the target (Dao et al. 2022, arXiv 2212.14052; Gu & Dao 2023, arXiv 2312.00752, section
// 4.1.2). Heads that find it are the induction heads of Olsson et al. 2022, arXiv 2209.11895.
#include <algorithm>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {
namespace {

/// Tokens: 0 … symbols-1 the symbols, symbols the marker.
struct InductionOptions : MixtureOfLengths {
  int64_t symbols = 16;

  InductionOptions() : MixtureOfLengths{{256}} {}
  void describe(OptionVisitor& v) {
    v.integers("length", length, {3, 1 << 24}, "tokens per example; a list: of each segment");
    v.integer("symbols", symbols, {1, 1 << 24}, "number of different symbols besides the marker");
    sizes.describe(v);
    require_one_or_each(v, {{"length", length}}, sizes);
  }
};

std::optional<TaskInfo> info_of(const InductionOptions& o) {
  return TaskInfo{.vocabulary = o.symbols + 1,
                  .classes = o.symbols + 1,
                  .per_token = true,
                  .max_length = o.max_length()};
}

Task make(const InductionOptions& o, uint64_t seed, const Splits&) {
  const Draw draw = [symbols = o.symbols](RandomStream& random, std::span<int32_t> tokens,
                                          std::span<int32_t> targets) {
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(symbols));
    std::ranges::fill(targets, ignore_index);
    const size_t marked = random.below(tokens.size() - 2);
    tokens[marked] = tokens.back() = static_cast<int32_t>(symbols);
    targets.back() = tokens[marked + 1];
  };
  return o.make(*info_of(o), draw, seed);
}

}  // namespace

TaskSpec register_induction() {
  return make_spec<InductionOptions>(
      "a marker among symbols, and again at the end: which symbol followed it", info_of, make);
}

}  // namespace longhand::data
