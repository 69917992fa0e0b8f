// group: elements of a group, and their product so far. A state that only decays and adds cannot
// track it in a non-solvable group, like S5 and A5 (Merrill, Petty & Sabharwal 2024, "The Illusion
// of State in State-Space Models", arXiv 2404.08819). Recurrences that can, and variants with only
// transpositions or several tokens per element: Grazzi et al. 2024, arXiv 2411.12537, section 5.2.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {
namespace {

using Permutation = std::vector<int>;

// Permutations of n points in lexicographic order; only the even ones, if asked for.
std::vector<Permutation> permutations(int n, bool even) {
  const auto inversions = [&](const Permutation& p) {
    int count = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < i; ++j) count += p[j] > p[i];
    return count;
  };
  std::vector<Permutation> all;
  Permutation p(static_cast<size_t>(n));
  std::iota(p.begin(), p.end(), 0);
  do {
    if (!even || inversions(p) % 2 == 0) all.push_back(p);
  } while (std::next_permutation(p.begin(), p.end()));
  return all;
}

/// A finite group: elements 0 … size-1, of which 0 is the identity.
struct Group {
  int32_t size = 1;
  std::vector<int32_t> table{};  // a b at [a size + b]; empty: addition modulo size
  std::vector<int> moved{};      // the number of points that a permutation moves

  int32_t product(int32_t a, int32_t b) const {
    return table.empty() ? static_cast<int32_t>((int64_t{a} + b) % size)
                         : table[static_cast<size_t>(a) * static_cast<size_t>(size) + b];
  }
};

// "S5": permutations, a b is b after a; "A5": even ones; "Z60": integers modulo 60.
Group group_of(const std::string& kind, int64_t degree) {
  if (kind == "Z") return {.size = static_cast<int32_t>(degree)};
  const auto elements = permutations(static_cast<int>(degree), kind == "A");
  std::map<Permutation, int32_t> index;
  for (const Permutation& p : elements) index.emplace(p, static_cast<int32_t>(index.size()));
  Group group{.size = static_cast<int32_t>(elements.size())};
  for (const Permutation& a : elements) {
    int moved = 0;
    for (int i = 0; i < std::ssize(a); ++i) moved += a[i] != i;
    group.moved.push_back(moved);
    for (const Permutation& b : elements) {
      Permutation product(a.size());
      for (size_t i = 0; i < a.size(); ++i) product[i] = b[static_cast<size_t>(a[i])];
      group.table.push_back(index.at(product));
    }
  }
  return group;
}

/// Tokens: elements, and with several tokens for each, one that follows the element.
struct GroupOptions : MixtureOfLengths {
  std::string kind = "S", elements = "all";
  int64_t degree = 5, tokens_per_element = 1;

  GroupOptions() : MixtureOfLengths{{40}} {}
  int64_t size() const {
    int64_t size = degree;
    if (kind == "Z") return size;
    for (int64_t i = 2; i < degree; ++i) size *= i;
    return kind == "A" ? std::max<int64_t>(1, size / 2) : size;
  }
  int64_t most_moved() const {
    return elements == "swaps" ? 2 : elements == "up_to_3" ? 3 : degree;
  }
  void describe(OptionVisitor& v) {
    v.choice("kind", kind, {"S", "A", "Z"},
             "the group: permutations (S), even permutations (A), integers under addition (Z)");
    v.integer("degree", degree, {1, 1 << 20},
              "number of points that are permuted, at most 6; the modulus of Z");
    v.require(kind == "Z" || degree <= 6, "degree", "expected at most 6 points");
    v.choice(
        "elements", elements, {"all", "swaps", "up_to_3"},
        "which elements occur, each equally likely: all; permutations that exchange two points or "
        "none; those that move at most three");
    v.require(elements == "all" || kind != "Z", "elements", "expected all with kind = \"Z\"");
    v.require(elements != "swaps" || kind != "A", "elements",
              "exchanges are not even: expected all or up_to_3 with kind = \"A\"");
    v.integer(
        "tokens_per_element", tokens_per_element, {1, 64},
        "tokens for each element: itself, and then one that is the same for all; the target is at "
        "the last of them");
    sizes.describe(v);
    describe_lengths(v, "elements per example", 1);
  }
};

std::optional<TaskInfo> info_of(const GroupOptions& o) {
  return TaskInfo{.vocabulary = o.size() + (o.tokens_per_element > 1),
                  .classes = o.size(),
                  .per_token = true,
                  .max_length = o.max_length() * o.tokens_per_element,
                  .tracks = true};
}

Task make(const GroupOptions& o, uint64_t seed, const Splits&) {
  const Group group = group_of(o.kind, o.degree);
  std::vector<int32_t> elements;
  for (int32_t a = 0; a < group.size; ++a)
    if (group.moved.empty() || group.moved[static_cast<size_t>(a)] <= o.most_moved())
      elements.push_back(a);
  const auto each = static_cast<size_t>(o.tokens_per_element);
  const Draw draw = [group = std::make_shared<const Group>(group), elements, each](
                        RandomStream& random, std::span<int32_t> tokens,
                        std::span<int32_t> targets) {
    std::ranges::fill(tokens, group->size);
    std::ranges::fill(targets, ignore_index);
    int32_t state = 0;
    for (size_t i = 0; i < tokens.size(); i += each) {
      tokens[i] = elements[random.below(elements.size())];
      targets[i + each - 1] = state = group->product(state, tokens[i]);
    }
  };
  return o.make(*info_of(o), seed, [&](GeneratedSegment& segment, int64_t) {
    segment.draw = draw;
    segment.length *= o.tokens_per_element;
    if (segment.draw_length)
      segment.draw_length = [elements_of = segment.draw_length, n = o.tokens_per_element](
                                RandomStream& random) { return elements_of(random) * n; };
  });
}

}  // namespace

TaskSpec register_group() {
  return make_spec<GroupOptions>("elements of a group, and their product so far", info_of, make);
}

}  // namespace longhand::data
