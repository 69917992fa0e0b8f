#include "longhand/train/run/durations.h"

#include <algorithm>
#include <vector>

#include "longhand/core/random.h"
#include "tests/support/catch.h"

namespace longhand::train {

TEST_CASE("the median of durations, in constant memory") {
  Durations durations;
  CHECK_FALSE(durations.median());
  std::vector<double> all;
  const Generator random(3);
  for (int i = 0; i < 1001; ++i) {
    all.push_back(0.001 + random.uniform(static_cast<uint64_t>(i)));
    durations.add(all.back());
    if (i != 0 && i != 7 && i != 1000) continue;
    std::sort(all.begin(), all.end());
    CHECK(*durations.median() == Approx(all[all.size() / 2]).epsilon(0.005));
  }
  for (const double seconds : {1e-9, 3600.0, 1e9}) {
    Durations one;
    one.add(seconds);
    CHECK(*one.median() == Approx(std::clamp(seconds, 1e-7, 1e5)).epsilon(0.01));
  }
}

}  // namespace longhand::train
