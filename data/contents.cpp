#include "longhand/data/contents.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace longhand::data {

Contents contents_of(const Dataset& dataset) {
  constexpr int64_t round = 256;
  Contents out{.examples = dataset.size()};
  std::vector<int64_t> lengths;
  std::vector<bool> occurs;
  std::unordered_map<int32_t, int64_t> classes;
  ContentHasher hasher;
  for (int64_t first = 0; first < out.examples; first += round) {
    const Batch batch = dataset.collate(indices_from(first, std::min(first + round, out.examples)));
    hasher.add(batch);
    for (const auto& [tokens, targets] : examples_of(batch)) {
      lengths.push_back(std::ssize(tokens));
      out.tokens += std::ssize(tokens);
      for (const int32_t token : tokens) {
        if (token >= std::ssize(occurs)) occurs.resize(static_cast<size_t>(token) + 1);
        occurs[token] = true;
      }
      for (const int32_t target : targets)
        if (target == ignore_index)
          ++out.ignored;
        else
          ++classes[target];
      out.digests.push_back(digest(std::as_bytes(tokens)));
    }
  }
  out.hash = hasher.hex();
  out.different_tokens = std::ranges::count(occurs, true);
  out.largest_token = static_cast<int32_t>(occurs.size()) - 1;
  out.classes = {classes.begin(), classes.end()};
  std::ranges::sort(lengths);
  if (!lengths.empty()) {
    out.shortest = lengths.front();
    out.median = lengths[lengths.size() / 2];
    out.longest = lengths.back();
  }
  std::ranges::sort(out.digests);
  out.digests.erase(std::unique(out.digests.begin(), out.digests.end()), out.digests.end());
  out.repeated = out.examples - std::ssize(out.digests);
  return out;
}

int64_t shared_examples(const Contents& a, const Contents& b) {
  std::vector<Digest> both;
  std::set_intersection(a.digests.begin(), a.digests.end(), b.digests.begin(), b.digests.end(),
                        std::back_inserter(both));
  return std::ssize(both);
}

}  // namespace longhand::data
