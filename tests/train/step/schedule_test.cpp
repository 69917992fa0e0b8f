#include "longhand/train/step/schedule.h"

#include <cmath>

#include "longhand/core/error.h"
#include "tests/support/catch.h"

namespace longhand::train {
namespace {

using Kind = Schedule::Kind;

void check_values(const Schedule& s, const std::vector<std::pair<int64_t, double>>& values) {
  for (const auto& [t, lr] : values) {
    INFO("step " << t);
    CHECK(std::abs(s.at(t) - lr) <= 1e-12);
  }
}

}  // namespace

TEST_CASE("schedules have the values of their formulas") {
  SECTION("constant") {
    check_values({Kind::constant, 0.5, 0, 10}, {{0, 0.5}, {9, 0.5}, {100, 0.5}});
    check_values({Kind::constant, 0.5, 4, 10},
                 {{0, 0.125}, {1, 0.25}, {3, 0.5}, {4, 0.5}, {9, 0.5}});
  }
  SECTION("linear") {
    check_values({Kind::linear, 1, 2, 12},
                 {{0, 0.5}, {1, 1}, {2, 1}, {3, 0.9}, {7, 0.5}, {11, 0.1}, {12, 0.1}});
    check_values({Kind::linear, 1, 0, 4, 0.2}, {{0, 1}, {2, 0.6}, {3, 0.4}});
  }
  SECTION("cosine") {
    check_values({Kind::cosine, 1, 0, 4},
                 {{0, 1}, {1, (1 + std::sqrt(0.5)) / 2}, {2, 0.5}, {3, (1 - std::sqrt(0.5)) / 2}});
    check_values({Kind::cosine, 1, 2, 6, 0.5}, {{0, 0.5}, {1, 1}, {2, 1}, {4, 0.75}});
  }
  SECTION("inverse square root") {
    // Vaswani et al. 2017, eq. 3, counts from 1: min(step^-1/2, step warmup^-3/2).
    const double w = 16, peak = 0.25;  // d^-1/2 warmup^-1/2 with d = 1
    const Schedule s{Kind::inverse_sqrt, peak, 16, 1000};
    for (int64_t t = 0; t < 1000; ++t) {
      const double step = static_cast<double>(t + 1);
      CHECK(s.at(t) == Approx(std::min(1 / std::sqrt(step), step * std::pow(w, -1.5))));
    }
    check_values({Kind::inverse_sqrt, 1, 0, 10}, {{0, 1}, {3, 0.5}});
  }
  SECTION("one cycle") {
    // torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10, pct_start=0.3,
    // anneal_strategy="linear"): peak at step 0.3 * 10 - 1.
    check_values({Kind::one_cycle, 1, 3, 10},
                 {{0, 0.04}, {1, 0.52}, {2, 1}, {3, 1 + (4e-6 - 1) / 7}, {9, 4e-6}, {10, 4e-6}});
    check_values({Kind::one_cycle, 1, 1, 3}, {{0, 1}, {1, (1 + 4e-6) / 2}, {2, 4e-6}});
  }
}

TEST_CASE("no schedule leaves the range from 0 to its rate") {
  const Kind kind =
      GENERATE(Kind::constant, Kind::linear, Kind::cosine, Kind::inverse_sqrt, Kind::one_cycle);
  const int64_t warmup = GENERATE(0, 1, 2, 5, 9, 10, 30), total = GENERATE(1, 2, 10);
  const Schedule s{kind, 0.5, warmup, total};
  for (int64_t t = 0; t < 2 * total; ++t) {
    INFO("warm-up " << warmup << " of " << total << " step " << t);
    CHECK((s.at(t) >= 0 && s.at(t) <= 0.5 + 1e-15));
  }
}

TEST_CASE("schedule options are read and checked") {
  Options section("optimizer");
  section.set("schedule", std::string("cosine"));
  section.set("lr", 0.5);
  section.set("warmup_steps", int64_t{3});
  section.set("final_lr", 0.25);
  const Schedule s = read_section(section, Schedule{.total_steps = 77});
  CHECK(s.kind == Kind::cosine);
  CHECK(s.lr == 0.5);
  CHECK(s.warmup_steps == 3);
  CHECK(s.total_steps == 77);
  CHECK(s.final_lr == 0.25);

  const auto refused = [](const std::string& key, OptionValue value) {
    Options o("optimizer");
    o.set("schedule", std::string("linear"));
    o.set(key, value);
    CHECK_THROWS_AS(read_section(o, Schedule{.total_steps = 10}), ConfigError);
  };
  refused("schedule", std::string("cosin"));
  refused("lr", -1.0);
  refused("lr", std::string("fast"));
  refused("warmup_steps", int64_t{-1});
  refused("final_lr", 0.1);  // above the default rate

  Options cycle("optimizer");
  cycle.set("schedule", std::string("one_cycle"));
  CHECK(read_section(cycle, Schedule{.total_steps = 100}).warmup_steps == 30);
  cycle.set("final_lr", 0.0);
  CHECK_THROWS_WITH(read_section<Schedule>(cycle),
                    Catch::Contains("optimizer.final_lr") &&
                        Catch::Contains("only with schedule = \"linear\" or \"cosine\""));
}

}  // namespace longhand::train
