// parity: whether the number of ones so far is odd. One bit of state suffices, but it must be
// reversed by every 1, which a state that only decays cannot do (Hahn 2020, arXiv 1906.06755, on
// softmax attention; Grazzi et al. 2024, arXiv 2411.12537, on linear recurrences).
#include <string>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {
namespace {

struct ParityOptions : MixtureOfLengths {
  std::string targets = "each";

  ParityOptions() : MixtureOfLengths{{64}} {}
  void describe(OptionVisitor& v) {
    v.integers("length", length, {1, 1 << 24}, "bits per example; a list: of each segment");
    v.choice("targets", targets, {"each", "last"},
             "where the parity of the bits so far is the target: at each bit, or only at the last");
    sizes.describe(v);
    require_one_or_each(v, {{"length", length}}, sizes);
  }
};

std::optional<TaskInfo> info_of(const ParityOptions& o) {
  return TaskInfo{.vocabulary = 2,
                  .classes = 2,
                  .per_token = true,
                  .max_length = o.max_length(),
                  .tracks = true};
}

Task make(const ParityOptions& o, uint64_t seed, const Splits&) {
  const Draw draw = [each = o.targets == "each"](RandomStream& random, std::span<int32_t> tokens,
                                                 std::span<int32_t> targets) {
    int32_t parity = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(random.below(2));
      parity ^= tokens[i];
      targets[i] = each || i + 1 == tokens.size() ? parity : ignore_index;
    }
  };
  return o.make(*info_of(o), draw, seed);
}

}  // namespace

TaskSpec register_parity() {
  return make_spec<ParityOptions>("bits, and whether the number of ones so far is odd", info_of,
                                  make);
}

}  // namespace longhand::data
