// The program longhand as a program of your own: a place to register variants and tasks without a
// plugin. It registers a task, largest.
//
//   build/plugin/own_program data show largest
#include <algorithm>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"
#include "longhand/train/cli/main.h"

using namespace longhand;

namespace {

struct LargestOptions {
  int64_t length = 16;
  data::SplitSizes sizes{.train = 20000, .validation = 1000, .test = 1000};

  void describe(OptionVisitor& v) {
    v.integer("length", length, {1, 1 << 20}, "tokens per example");
    sizes.describe(v);
  }
};

std::optional<data::TaskInfo> info_of(const LargestOptions& o) {
  return data::TaskInfo{.vocabulary = 10, .classes = 10, .per_token = true, .max_length = o.length};
}

// The target of the last token is the largest one.
data::Task make(const LargestOptions& o, uint64_t seed, const data::Splits&) {
  const auto draw = [](RandomStream& random, std::span<int32_t> tokens,
                       std::span<int32_t> targets) {
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(10));
    std::fill(targets.begin(), targets.end(), data::ignore_index);
    targets.back() = *std::max_element(tokens.begin(), tokens.end());
  };
  return data::make_generated(*info_of(o), {{"largest", o.length, o.sizes, draw}}, seed);
}

}  // namespace

int main(int argc, char** argv) {
  data::add("largest", data::make_spec<LargestOptions>("the largest of the tokens", info_of, make));
  return longhand::cli::main(argc, argv);
}
