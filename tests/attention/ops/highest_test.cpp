#include "longhand/attention/ops/highest.h"

#include <algorithm>
#include <numeric>

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// The first of all indices in the order of their scores, NaN as infinity, in increasing order.
std::vector<int32_t> by_sorting(std::vector<float> scores, size_t count) {
  for (float& x : scores)
    if (std::isnan(x)) x = INFINITY;
  std::vector<int32_t> all;
  for (size_t j = 0; j < scores.size(); ++j)
    if (scores[j] > -INFINITY) all.push_back(static_cast<int32_t>(j));
  std::stable_sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  all.resize(std::min(all.size(), count));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("Highest selects the highest scores, of equal ones the earlier") {
  const int64_t count = GENERATE(1, 5, 100, 2000);
  // Few: many scores are equal. 0: their exponents are spread instead, from subnormal numbers to infinity.
  const int64_t levels = GENERATE(0, 1, 4, 1000);
  std::vector<float> scores = normal({1500}, 1, DType::f32).to_vector<float>();
  for (float& x : scores)  // 0 of both signs among them
    x = levels == 0 ? std::copysign(std::exp(50 * x), std::sin(1000 * x))
                    : std::round(x * static_cast<float>(levels)) / static_cast<float>(levels);
  scores[3] = INFINITY;
  for (const size_t j : {0, 70, 1499}) scores[j] = -INFINITY;
  for (const size_t j : {1, 900}) scores[j] = NAN;

  attention::Highest<float> highest(count);
  for (int use = 0; use < 2; ++use) {
    highest.clear();
    for (int64_t first = 0; first < 1500; first += 401)  // parts that no block divides
      highest.add(scores.data() + first, std::min<int64_t>(401, 1500 - first), first);
    std::vector<int32_t> selected;
    highest.append_to(selected);
    CHECK(selected == by_sorting(scores, static_cast<size_t>(count)));
  }
}
