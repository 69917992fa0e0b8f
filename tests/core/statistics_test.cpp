#include "longhand/core/statistics.h"

#include <cmath>

#include "longhand/core/error.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("statistics: quantiles of Student's distribution") {
  // Tables of R: qt(p, df).
  CHECK(student_quantile(0.975, 1) == Approx(12.7062047).epsilon(1e-8));
  CHECK(student_quantile(0.975, 2) == Approx(4.30265273).epsilon(1e-8));
  CHECK(student_quantile(0.975, 9) == Approx(2.26215716).epsilon(1e-8));
  CHECK(student_quantile(0.9, 30) == Approx(1.31041503).epsilon(1e-8));
  CHECK(student_quantile(0.025, 9) == Approx(-2.26215716).epsilon(1e-8));
  CHECK(student_quantile(0.975, 1e6) == Approx(1.959966).epsilon(1e-6));
  CHECK_THROWS_AS(student_quantile(1, 3), Error);
}

TEST_CASE("statistics: means have intervals") {
  const std::vector<double> values{1, 2, 3, 4};
  const Estimate e = estimate(values);
  CHECK(e.mean == 2.5);
  CHECK(e.high - e.mean == Approx(3.18244631 * std::sqrt(5.0 / 3 / 4)).epsilon(1e-8));
  CHECK(e.mean - e.low == Approx(e.high - e.mean));
  CHECK(std::isnan(estimate(std::vector<double>{7}).low));
  CHECK_THROWS_AS(estimate({}), Error);
  // 95 % of intervals contain the mean.
  int covered = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    std::vector<double> draws;
    for (uint64_t j = 0; j < 5; ++j) draws.push_back(Generator(3).normal(5 * i + j));
    const Estimate mean = estimate(draws);
    covered += mean.low <= 0 && 0 <= mean.high;
  }
  CHECK(covered >= 1870);
  CHECK(covered <= 1930);
}

TEST_CASE("statistics: proportions") {
  // Wilson's interval of 8 of 10 (statsmodels.proportion_confint).
  const Estimate p = proportion(8, 10);
  CHECK(p.mean == 0.8);
  CHECK(p.low == Approx(0.4901625).epsilon(1e-6));
  CHECK(p.high == Approx(0.9433178).epsilon(1e-6));
  CHECK(proportion(0, 20).low == Approx(0).margin(1e-12));
  CHECK_THROWS_AS(proportion(0, 0), Error);
}

TEST_CASE("statistics: quantiles of a sample") {
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 1}, 0.25) == 1.75);
  CHECK(quantile({4, 1}, 1) == 4);
  CHECK_THROWS_AS(quantile({}, 0.5), Error);
}

TEST_CASE("statistics: lines and power laws") {
  const std::vector<double> x{1, 2, 4, 8}, y{3, 5, 9, 17};
  const Line exact = fit_line(x, y);
  CHECK(exact.slope == Approx(2));
  CHECK(exact.intercept == Approx(1));
  CHECK(exact.high - exact.low == Approx(0).margin(1e-10));
  std::vector<double> power;
  for (const double each : x) power.push_back(5 * std::pow(each, -0.5));
  CHECK(fit_power(x, power).slope == Approx(-0.5));
  // Anscombe's first data set: slope 0.5001, standard error 0.1179, 9 degrees of freedom.
  const Line line = fit_line(
      std::vector<double>{10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5},
      std::vector<double>{8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68});
  CHECK(line.slope == Approx(0.50009).epsilon(1e-4));
  CHECK(line.high - line.slope == Approx(2.26216 * 0.11791).epsilon(1e-3));
  CHECK_THROWS_AS(fit_line(std::vector<double>{1, 1}, std::vector<double>{1, 2}), Error);
  CHECK_THROWS_AS(fit_power(x, std::vector<double>{1, 2, 0, 1}), Error);
}
