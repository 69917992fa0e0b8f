// Rates of collective operations, against cases computed by hand.
#include "longhand/train/cost/rates.h"

#include <cmath>

#include "longhand/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/thread_ranks.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;

namespace {

/// Times that follow latency + bytes / bandwidth exactly, of 4 ranks.
std::vector<CollectiveTime> exact_times(double latency, double bandwidth) {
  std::vector<CollectiveTime> out;
  for (const int64_t bytes : {16, 4096, 1 << 20}) {
    // Of a shift, whose ranks send all of their bytes once.
    const double seconds = bytes == 16 ? latency : latency + static_cast<double>(bytes) / bandwidth;
    out.push_back({Collective::shift, 4, bytes, seconds, seconds, seconds, 5});
  }
  return out;
}

std::vector<CollectiveRate> rates_of(int64_t ranks, double latency, double bandwidth) {
  std::vector<CollectiveRate> out;
  for (const Collective each : all_collectives) out.push_back({each, ranks, latency, bandwidth, 0});
  return out;
}

}  // namespace

TEST_CASE("rates: latency and bandwidth of exact times are found") {
  const auto rates = fit_rates(exact_times(1e-5, 2e9));
  REQUIRE(rates.size() == 1);
  CHECK(rates[0].operation == Collective::shift);
  CHECK(rates[0].ranks == 4);
  CHECK(rates[0].latency == 1e-5);
  CHECK(rates[0].bandwidth == Approx(2e9).epsilon(1e-3));
  CHECK(rates[0].error < 1e-3);
}

TEST_CASE("rates: times that do not grow bound the bandwidth from below") {
  std::vector<CollectiveTime> times = exact_times(1e-5, 2e9);
  for (CollectiveTime& t : times) t.seconds = 1e-5;
  CHECK(fit_rates(times)[0].bandwidth == Approx((1 << 20) / 1e-5));
  times.assign(1, {Collective::barrier, 4, 0, 1e-5, 1e-5, 1e-5, 5});
  CHECK(std::isinf(fit_rates(times)[0].bandwidth));
}

TEST_CASE("rates: bytes sent are those of the formulas") {
  // Eight ranks: a sum is an exchange of eighths and a gathering of their sums.
  CHECK(bytes_sent(Collective::sum, 8, 8 << 20) == 2 * 7 * (1 << 20));
  CHECK(bytes_sent(Collective::sum, 8, 4096) == 7 * 4096);             // gathered as it is
  CHECK(bytes_sent(Collective::sum, 3, 4 * 1025) == 2 * 2 * 4 * 342);  // parts of 342 elements
  CHECK(bytes_sent(Collective::all_gather, 8, 8 << 20) == 7 * (1 << 20));
  CHECK(bytes_sent(Collective::sum_scatter, 8, 8 << 20) == 7 * (1 << 20));
  CHECK(bytes_sent(Collective::all_to_all, 8, 8 << 20) == 7 * (1 << 20));
  CHECK(bytes_sent(Collective::shift, 8, 1000) == 1000);
  CHECK(bytes_sent(Collective::broadcast, 8, 1000) == 7000);
  CHECK(bytes_sent(Collective::barrier, 8, 0) == 0);
  for (const Collective each : all_collectives) CHECK(bytes_sent(each, 1, 1 << 20) == 0);
}

TEST_CASE("rates: seconds are those of the formulas") {
  // Measured with 4 ranks: two rounds of 10 us.
  const Rates rates(rates_of(4, 20e-6, 1e9), "test");
  const double a = 10e-6, n = 16 << 20, m = n / 16;
  const auto seconds = [&](Collective operation, double bytes) {
    return rates.seconds(operation, 16, bytes);
  };
  const double gather = 4 * a + 15 * m / 1e9, pairs = 15 * (a + m / 1e9);
  CHECK(seconds(Collective::all_gather, n) == Approx(gather));
  CHECK(seconds(Collective::all_to_all, n) == Approx(pairs));
  CHECK(seconds(Collective::sum_scatter, n) == Approx(pairs));
  CHECK(seconds(Collective::sum, n) == Approx(pairs + gather));
  CHECK(seconds(Collective::shift, n) == Approx(20e-6 + n / 1e9));
  CHECK(seconds(Collective::broadcast, n) == Approx(4 * (a + n / 1e9)));
  CHECK(seconds(Collective::barrier, 0) == Approx(4 * a));
  // Few bytes go in rounds: four messages of 8 parts of 4 bytes.
  CHECK(seconds(Collective::all_to_all, 64) == Approx(4 * (a + 32 / 1e9)));
  CHECK(seconds(Collective::sum, 64) == Approx(4 * a + 15 * 64 / 1e9));
  for (const Collective each : all_collectives) CHECK(rates.seconds(each, 1, n) == 0);
}

TEST_CASE("rates: more ranks, more bytes and slower networks take longer") {
  const Rates fast = Rates::assumed(1e-6, 10e9), slow = Rates::assumed(1e-4, 1e9);
  for (const Collective each : all_collectives)
    for (const double bytes : {64.0, 1e4, 1e8}) {
      double before = 0;
      for (int64_t ranks = 2; ranks <= 1024; ranks *= 2) {
        CAPTURE(name_of(each), bytes, ranks);
        const double seconds = fast.seconds(each, ranks, bytes);
        CHECK(seconds >= before);
        CHECK(fast.seconds(each, ranks, 2 * bytes) >= seconds);
        CHECK(slow.seconds(each, ranks, bytes) > seconds);
        before = seconds;
      }
    }
}

TEST_CASE("rates: the measurement with the nearest number of ranks counts") {
  std::vector<CollectiveRate> two = rates_of(2, 1e-6, 1e9);
  const std::vector<CollectiveRate> eight = rates_of(8, 2e-6, 2e9);
  two.insert(two.end(), eight.begin(), eight.end());
  const Rates rates(two, "test");
  CHECK(rates.rate(Collective::sum, 2).ranks == 2);
  CHECK(rates.rate(Collective::sum, 3).ranks == 2);
  CHECK(rates.rate(Collective::sum, 5).ranks == 8);
  CHECK(rates.rate(Collective::sum, 1024).ranks == 8);
}

TEST_CASE("rates: what is no rate is refused") {
  std::vector<CollectiveRate> rates = rates_of(2, 1e-6, 1e9);
  rates.pop_back();
  CHECK_THROWS_WITH(Rates(rates, "a.json"), "a.json: has no rate of barrier");
  CHECK_THROWS_WITH(Rates(rates_of(2, 0, 1e9), "a.json"), Contains("latency of 0 s"));
  CHECK_THROWS_WITH(Rates(rates_of(2, 1e-6, -1), "a.json"), Contains("bandwidth of -1 bytes/s"));
  CHECK_THROWS_WITH(Rates(rates_of(1, 1e-6, 1e9), "a.json"), Contains("between 1 ranks"));
  CHECK_THROWS_AS(collective_named("reduce", "a.json"), DataError);
  for (const Collective each : all_collectives) CHECK(collective_named(name_of(each), "") == each);
}

TEST_CASE("rates: every operation is timed for every size, and sends what the formulas say") {
  for (const int count : {2, 3}) {
    test::run_ranks(count, [&](Communicator& ranks) {
      std::vector<Collective> reported;
      CollectiveBench options{.max_bytes = 100, .seconds = 0};
      options.on_progress = [&](int64_t, int64_t, Collective next) { reported.push_back(next); };
      const auto times = measure_collectives(ranks, options);
      // Sizes of one element a rank and of four: 8, 32 or 12, 48; the next one is above 100.
      if (times.size() != 6 * 2 + 1) throw Error("expected 13 times");
      if (reported.size() != times.size()) throw Error("expected as many reports");
      for (const CollectiveTime& t : times)
        if (!(t.seconds > 0 && t.seconds_low <= t.seconds && t.seconds <= t.seconds_high &&
              t.repetitions == 5 && t.ranks == count))
          throw Error("expected five repetitions, and their quartiles");
      if (fit_rates(times).size() != all_collectives.size()) throw Error("expected all operations");
      options.max_bytes = 4;
      try {
        measure_collectives(ranks, options);
        throw Error("expected a refusal");
      } catch (const ConfigError&) {
      }
    });
  }
}
