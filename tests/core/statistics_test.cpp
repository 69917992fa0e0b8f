#include "longhand/core/statistics.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

// Student's sleep data (1908): hours of sleep gained by ten patients with two drugs.
const std::vector<double> first_drug = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
const std::vector<double> second_drug = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

}  // namespace

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
  CHECK(std::isnan(estimate({}).mean));
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

TEST_CASE("statistics: Student's distribution, closed forms and tables") {
  for (const double t : {-30.0, -2.0, -0.1, 0.0, 0.5, 3.0, 1000.0}) {
    CAPTURE(t);
    CHECK(student_cdf(t, 1) == Approx(0.5 + std::atan(t) / std::numbers::pi).margin(1e-14));
    CHECK(student_cdf(t, 2) == Approx(0.5 + t / (2 * std::sqrt(2 + t * t))).margin(1e-14));
    // With many degrees of freedom it is the normal distribution.
    CHECK(student_cdf(t, 1e7) == Approx(std::erfc(-t / std::numbers::sqrt2) / 2).margin(1e-6));
  }
  for (const auto& [degrees, t] : {std::pair{1.0, 12.7062},
                                   {2.0, 4.30265},
                                   {4.0, 2.77645},
                                   {9.0, 2.26216},
                                   {30.0, 2.04227},
                                   {120.0, 1.97993}}) {
    CAPTURE(degrees);
    CHECK(student_quantile(0.975, degrees) == Approx(t).epsilon(2e-6));
    CHECK(student_quantile(0.025, degrees) == Approx(-t).epsilon(2e-6));
  }
  CHECK(student_quantile(0.5, 3) == Approx(0).margin(1e-10));
  CHECK_THROWS_AS(student_quantile(1, 3), Error);
  CHECK_THROWS_AS(student_cdf(1, 0), Error);
}

TEST_CASE("statistics: the paired test of Student's sleep data") {
  // As R's t.test(extra ~ group, data = sleep, paired = TRUE) prints it.
  const PairedTest test = paired_test(first_drug, second_drug);
  CHECK(test.difference.mean == Approx(-1.58));
  CHECK(test.difference.low == Approx(-2.4598858).epsilon(1e-7));
  CHECK(test.difference.high == Approx(-0.7001142).epsilon(1e-7));
  CHECK(test.difference.count == 10);
  CHECK(test.p == Approx(0.002833).epsilon(2e-4));
  CHECK(paired_test(second_drug, first_drug).p == Approx(test.p));
}

TEST_CASE("statistics: intervals and tests with few or equal values") {
  CHECK(estimate(std::vector<double>{}).count == 0);
  CHECK(std::isnan(estimate(std::vector<double>{}).mean));
  const Estimate one = estimate(std::vector<double>{3});
  CHECK(one.mean == 3);
  CHECK(std::isnan(one.low));
  // Two values: mean ± 12.7062 s / √2, where s / √2 is half of their distance.
  const Estimate two = estimate(std::vector<double>{1, 2});
  CHECK(two.high - two.mean == Approx(12.7062 / 2).epsilon(1e-5));
  const std::vector<double> same = {1, 2, 3}, more = {2, 3, 4};
  CHECK(paired_test(same, same).p == 1);
  CHECK(paired_test(same, more).p == 0);
  CHECK(std::isnan(paired_test(std::vector<double>{1}, std::vector<double>{2}).p));
  CHECK_THROWS_AS(paired_test(same, std::vector<double>{1}), Error);
}

TEST_CASE("statistics: Holm's correction") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
  const std::vector<double> corrected = holm({0.01, 0.04, nan, 0.03, 0.005});
  const std::vector<double> expected = {0.03, 0.06, nan, 0.06, 0.02};
  for (size_t i = 0; i < expected.size(); ++i)
    if (i == 2)
      CHECK(std::isnan(corrected[i]));
    else
      CHECK(corrected[i] == Approx(expected[i]));
  CHECK(holm({0.6, 0.7}) == std::vector<double>{1, 1});
}

TEST_CASE("statistics: intervals are cut to a range") {
  const Estimate cut = clipped({0.9, 0.7, 1.1, 3}, 0, 1);
  CHECK(cut.mean == 0.9);
  CHECK(cut.low == 0.7);
  CHECK(cut.high == 1);
  CHECK(std::isnan(clipped({0.9, std::nan(""), std::nan(""), 1}, 0, 1).low));
}

TEST_CASE("statistics: ratios, and fractions of trials in groups") {
  // With one count each, the mean with a normal interval, and Wilson's interval.
  const std::vector<double> ones(10, 1);
  const Estimate mean = ratio(first_drug, ones), student = estimate(first_drug);
  CHECK(mean.mean == Approx(student.mean));
  CHECK((mean.high - mean.mean) / (student.high - student.mean) ==
        Approx(1.959964 / student_quantile(0.975, 9)));
  const std::vector<double> hits = {1, 1, 0, 1, 0, 1, 1, 1, 1, 0};
  const Estimate grouped = grouped_proportion(hits, ones), wilson = proportion(7, 10);
  CHECK(grouped.mean == Approx(0.7));
  CHECK(grouped.low == Approx(wilson.low));
  CHECK(grouped.high == Approx(wilson.high));
  // Trials of a group that always agree are worth one.
  std::vector<double> doubled = hits;
  for (double& each : doubled) each *= 3;
  const Estimate same = grouped_proportion(doubled, std::vector<double>(10, 3));
  CHECK(same.low == Approx(wilson.low));
  CHECK(same.high == Approx(wilson.high));
  // Independent trials are worth what they are: p (1 - p) / V = 1/4 / (2/64).
  const Estimate four =
      grouped_proportion(std::vector<double>{2, 1, 0, 1}, std::vector<double>(4, 2));
  CHECK(four.low == Approx(proportion(4, 8).low));
  CHECK(four.count == 4);
  // Without variance: as many trials as groups.
  const Estimate all = grouped_proportion(std::vector<double>(10, 3), std::vector<double>(10, 3));
  CHECK(all.mean == 1);
  CHECK(all.high == 1);
  CHECK(all.low == Approx(proportion(10, 10).low));
  // Groups of different sizes: (1 + 4) / (2 + 8).
  const Estimate uneven = ratio(std::vector<double>{1, 4}, std::vector<double>{2, 8});
  CHECK(uneven.mean == 0.5);
  CHECK(uneven.low == uneven.high);
  CHECK(std::isnan(ratio(std::vector<double>{1}, std::vector<double>{2}).low));
  CHECK(std::isnan(ratio(std::vector<double>{}, std::vector<double>{}).mean));
  CHECK_THROWS_AS(ratio(hits, std::vector<double>{1}), Error);
}
