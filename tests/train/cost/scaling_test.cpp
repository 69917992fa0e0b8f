#include "longhand/train/cost/scaling.h"

#include <set>

#include "longhand/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/thread_ranks.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;

TEST_CASE("scaling: one rank and all of them are timed in turns") {
  std::vector<int64_t> bytes;
  double waited = 0;  // hardly ever nothing in both
  for (const int64_t steps : {1, 3}) {
    Scaling found;
    std::vector<int64_t> turns;
    test::run_ranks(2, [&](Communicator& ranks) {
      ScalingOptions options{.steps = steps, .turns = 2};
      if (ranks.rank() == 0) options.on_turn = [&](int64_t turn) { turns.push_back(turn); };
      const Scaling scaling = measure_scaling(ranks, test::tiny_run(), options);
      if (ranks.rank() == 0) found = scaling;
    });
    CHECK(turns == std::vector<int64_t>{1, 2});
    CHECK(found.tokens == 4 * 16);
    REQUIRE(found.one.size() == 2);
    REQUIRE(found.all.size() == 2);
    for (const size_t i : {0, 1}) {
      CHECK(found.one[i] > 0);
      CHECK(found.all[i] > 0);
      CHECK(found.all[i] < 60);
    }
    CHECK(found.waited >= 0);
    waited += found.waited;
    bytes.push_back(found.bytes);

    std::set<int> ranks;
    std::set<std::string> phases;
    for (const Span& span : found.timeline) {
      CHECK(span.begin >= 0);
      CHECK(span.end >= span.begin);
      ranks.insert(span.rank);
      if (!span.sends) phases.insert(span.what);
    }
    CHECK(ranks == std::set<int>{0, 1});
    CHECK(phases.contains("wait"));
  }
  CHECK(waited > 0);
  CHECK(bytes[0] > 0);
  CHECK(bytes[0] == bytes[1]);
}

TEST_CASE("scaling: the speed-up is that of medians, what is hidden that of time") {
  Scaling s;
  s.one = {2, 1, 3};
  s.all = {4, 8, 2};
  CHECK(s.speed_up(4) == 2);  // four ranks, half as fast
  CHECK(s.hidden() == 1);
  s.communication = 2;
  s.waited = 0.5;
  CHECK(s.hidden() == 0.75);
  s.waited = 3;
  CHECK(s.hidden() == 0);
}
