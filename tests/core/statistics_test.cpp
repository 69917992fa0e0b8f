#include "longhand/core/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
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
  for (const double p : {1e-3, 0.2, 0.5, 0.9, 0.9999}) {
    CAPTURE(p);
    CHECK(student_quantile(p, 1) ==
          Approx(std::tan(std::numbers::pi * (p - 0.5))).epsilon(1e-9).margin(1e-12));
    CHECK(student_quantile(p, 2) ==
          Approx((2 * p - 1) / std::sqrt(2 * p * (1 - p))).epsilon(1e-9).margin(1e-12));
  }
  for (const auto& [degrees, t] : {std::pair{1.0, 12.7062},
                                   {2.0, 4.30265},
                                   {4.0, 2.77645},
                                   {9.0, 2.26216},
                                   {30.0, 2.04227},
                                   {120.0, 1.97993},
                                   {1e7, 1.959964}}) {  // as the normal distribution
    CAPTURE(degrees);
    CHECK(student_quantile(0.975, degrees) == Approx(t).epsilon(2e-6));
    CHECK(student_quantile(0.025, degrees) == Approx(-t).epsilon(2e-6));
  }
  CHECK(student_quantile(0.5, 3) == Approx(0).margin(1e-10));
  CHECK_THROWS_AS(student_quantile(1, 3), Error);
  CHECK_THROWS_AS(student_quantile(0.5, 0), Error);
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

TEST_CASE("statistics: intervals of positive values stay above 0, and are those of the logarithm") {
  // Two values: t = 12.7062, the standard error is half of their distance.
  const std::vector<double> two = {1, 3};
  const Estimate e = estimate_of_positive(two);
  CHECK(estimate(two).low < 0);
  CHECK(e.mean == 2);
  CHECK(std::log(e.high / 2) == Approx(12.7062 * 1 / 2).epsilon(1e-5));
  CHECK(e.low * e.high == Approx(4));
  // The same where the spread is small.
  const std::vector<double> near = {1, 1.0001, 1.0002};
  CHECK(estimate_of_positive(near).low == Approx(estimate(near).low).epsilon(1e-7));
  for (const std::vector<double>& values :
       {std::vector<double>{-1, 3}, {0, 0}, {2}, std::vector<double>{}}) {
    const Estimate a = estimate_of_positive(values), b = estimate(values);
    for (const auto& [x, y] : {std::pair(a.mean, b.mean), {a.low, b.low}, {a.high, b.high}})
      CHECK((x == y || (std::isnan(x) && std::isnan(y))));
  }
  CHECK(estimate_of_positive(std::vector<double>{0, 2}).low > 0);
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
  // Equal differences have no spread: neither p nor interval.
  CHECK(std::isnan(paired_test(same, same).p));
  CHECK(std::isnan(paired_test(same, more).p));
  CHECK(std::isnan(paired_test(same, more).difference.low));
  // Two seeds that solve it and two that do not: chance gives this in one of eight sweeps.
  const std::vector<double> solving{0.97, 0.98}, failing{0.1, 0.12};
  CHECK(paired_test(solving, failing).p < 0.05);
  CHECK(std::isnan(paired_test_of_seeds(solving, failing).p));
  CHECK(std::isnan(paired_test_of_seeds(solving, failing).difference.low));
  CHECK(paired_test_of_seeds(solving, std::vector<double>{0.95, 0.97}).p > 0);
  // No example differs: the interval has a width.
  const Estimate none = paired_difference(std::vector<double>(10, 0), std::vector<double>(10, 1));
  CHECK((none.mean == 0 && none.low < -0.1 && none.high > 0.1));
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

TEST_CASE("statistics: accuracies of seeds") {
  const Estimate cut = accuracy_of_seeds(std::vector<double>{0.8, 0.95, 0.95});
  CHECK(cut.mean == Approx(0.9));
  CHECK(cut.low == Approx(0.9 - 4.30265 * 0.05).epsilon(1e-5));
  CHECK(cut.high == 1);
  CHECK(std::isnan(accuracy_of_seeds(std::vector<double>{1, 1, 1}).low));
  CHECK(std::isnan(accuracy_of_seeds(std::vector<double>{0.1, 0.99, 1}).low));
  CHECK(std::isnan(accuracy_of_seeds(std::vector<double>{0.1}).low));
  // Two of three solved: Wilson's interval of 2/3.
  const auto two = solved(std::vector<double>{0.99, 0.1, 1});
  REQUIRE(two);
  CHECK(two->count == 3);
  CHECK(two->mean == Approx(2. / 3));
  CHECK(two->low == Approx(0.20766).epsilon(1e-3));
  CHECK(two->high == Approx(0.93851).epsilon(1e-3));
  // In two groups, of which neither solved it: no interval of the mean either.
  const std::vector<double> none = {0.1, 0.12, 0.6, 0.61};
  CHECK_FALSE(solved(none));
  REQUIRE(two_groups(none));
  CHECK(two_groups(none)->upper == 2);
  CHECK(two_groups(none)->seeds == 4);
  CHECK(two_groups(none)->low == 0.12);
  CHECK(two_groups(none)->high == 0.6);
  CHECK(std::isnan(accuracy_of_seeds(none).low));
  CHECK(std::isnan(paired_test_of_seeds(none, std::vector<double>{0.1, 0.11, 0.12, 0.13}).p));
  CHECK(solved(std::vector<double>{0.7, 0.95})->mean == 0.5);
  CHECK_FALSE(solved(std::vector<double>{0.8, 0.95}));      // too near
  CHECK_FALSE(solved(std::vector<double>{0, 0, 0.25}));     // far apart, but none solved it
  CHECK_FALSE(solved(std::vector<double>{0.1, 0.3, 0.7}));  // spread
  CHECK_FALSE(solved(std::vector<double>{0.9}));
  CHECK_FALSE(solved(std::vector<double>{}));
}

TEST_CASE("statistics: ratios, and fractions of trials in groups") {
  // With one count each, the mean with Student's interval.
  const std::vector<double> ones(10, 1);
  const Estimate mean = ratio(first_drug, ones), student = estimate(first_drug);
  CHECK(mean.mean == Approx(student.mean));
  CHECK(mean.low == Approx(student.low));
  CHECK(mean.high == Approx(student.high));
  // (1 + 9)² / (1 + 81) = 1.22 groups.
  const Estimate unequal = ratio(std::vector<double>{1, 18}, std::vector<double>{1, 9});
  CHECK(unequal.mean == 1.9);
  CHECK(unequal.high - unequal.mean ==
        Approx(student_quantile(0.975, 100. / 82 - 1) * std::sqrt(100. / 18 * 2 * 0.81) / 10));

  // Four groups of two trials: V = 4/3 2/64 = 1/24, p (1 - p) / V = 6, and two groups have a failure
  // or three a success, so that t has 3 degrees of freedom at most and 3 of these here.
  const Estimate four =
      grouped_proportion(std::vector<double>{2, 1, 0, 1}, std::vector<double>(4, 2));
  const double t = student_quantile(0.975, 3), middle = (0.5 + t * t / 12) / (1 + t * t / 6);
  const double half = t * std::sqrt(0.25 / 6 + t * t / 144) / (1 + t * t / 6);
  CHECK(four.mean == 0.5);
  CHECK(four.count == 4);
  CHECK(four.low == Approx(middle - half));
  CHECK(four.high == Approx(middle + half));
  // Trials of a group that always agree are worth one: not wider than R's binom.test(7, 10).
  const std::vector<double> hits = {3, 3, 0, 3, 0, 3, 3, 3, 3, 0};
  const Estimate same = grouped_proportion(hits, std::vector<double>(10, 3));
  CHECK(same.low == Approx(0.3475471).epsilon(1e-6));
  CHECK(same.high == Approx(0.9332605).epsilon(1e-6));
  // Without variance, too: binom.test(10, 10).
  const Estimate all = grouped_proportion(std::vector<double>(10, 3), std::vector<double>(10, 3));
  CHECK(all.mean == 1);
  CHECK(all.high == 1);
  CHECK(all.low == Approx(0.6915029).epsilon(1e-6));
  CHECK(std::isnan(grouped_proportion(std::vector<double>{1}, std::vector<double>{2}).low));
  // Groups of different sizes: (1 + 4) / (2 + 8).
  const Estimate uneven = ratio(std::vector<double>{1, 4}, std::vector<double>{2, 8});
  CHECK(uneven.mean == 0.5);
  CHECK(uneven.low == uneven.high);
  CHECK(std::isnan(ratio(std::vector<double>{1}, std::vector<double>{2}).low));
  CHECK(std::isnan(ratio(std::vector<double>{}, std::vector<double>{}).mean));
  CHECK_THROWS_AS(ratio(first_drug, std::vector<double>{1}), Error);
}

TEST_CASE("statistics: the interval of a median is between order statistics") {
  std::vector<double> values = {5, 1, 4, 2, 3};
  CHECK(median_of(values).mean == 3);
  CHECK(std::isnan(median_of(values).low));  // 1 … 5 would hold 94 %
  values.push_back(100);
  CHECK(median_of(values).mean == 3.5);
  CHECK(median_of(values).low == 1);
  CHECK(median_of(values).high == 100);
  values.insert(values.end(), {6, 7, 8});
  CHECK(median_of(values).low == 2);
  CHECK(median_of(values).high == 8);
  CHECK(median_of(values).count == 9);
  CHECK(std::isnan(median_of({}).mean));
}

namespace {

// One synthetic measurement: an interval, and whether it holds the truth; nothing without an interval.
using Trial = std::function<std::optional<bool>(RandomStream&)>;

struct CoverageCase {
  const char *interval, *data;
  int64_t n;
  Trial trial;
};

double exponential(RandomStream& random) { return -std::log(1 - random.uniform()); }
// Of mean 1 and standard deviation 1/2, skewness 1.
double skewed(RandomStream& random) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += exponential(random);
  return sum / 4;
}
// One of Beta(1/2, 1/2) + Beta: the mean of a group whose trials have the correlation rho is p.
double group_mean(RandomStream& random, double p, double rho) {
  if (rho == 0) return p;
  if (rho == 1) return random.uniform() < p;
  // Jöhnk 1964.
  const double a = p * (1 / rho - 1), b = (1 - p) * (1 / rho - 1);
  for (;;) {
    const double x = std::pow(random.uniform(), 1 / a), y = std::pow(random.uniform(), 1 / b);
    if (x + y <= 1 && x + y > 0) return x / (x + y);
  }
}

std::optional<bool> holds(const Estimate& e, double truth) {
  if (std::isnan(e.low)) return std::nullopt;
  return e.low <= truth + 1e-12 && truth - 1e-12 <= e.high;
}

std::vector<CoverageCase> coverage_cases() {
  std::vector<CoverageCase> out;
  const auto sample = [](RandomStream& random, int64_t n, auto draw) {
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(draw(random));
    return values;
  };
  const auto normal = [](RandomStream& random) { return random.normal(); };
  // Means of normal values of deviation 0.05 cut to 1, by numerical integration.
  const auto cut_at = [](double mean) {
    return [mean](RandomStream& random) { return std::min(1.0, mean + 0.05 * random.normal()); };
  };
  for (const int64_t n : {2, 3, 5, 10}) {
    out.push_back({"mean over seeds", "normal", n, [=](RandomStream& random) {
                     return holds(estimate(sample(random, n, normal)), 0);
                   }});
    out.push_back({"mean over seeds", "skewed", n, [=](RandomStream& random) {
                     return holds(estimate(sample(random, n, skewed)), 1);
                   }});
    out.push_back(
        {"accuracy over seeds", "0.9, deviation 0.05, cut at 1", n, [=](RandomStream& random) {
           return holds(accuracy_of_seeds(sample(random, n, cut_at(0.9))), 0.8995757);
         }});
    out.push_back(
        {"accuracy over seeds", "0.95, deviation 0.05, cut at 1", n, [=](RandomStream& random) {
           return holds(accuracy_of_seeds(sample(random, n, cut_at(0.95))), 0.9458342);
         }});
    if (n < 10)
      out.push_back({"solved of seeds", "1/2 of all", n, [=](RandomStream& random) {
                       const auto found = solved(sample(random, n, [](RandomStream& r) {
                         return (r.uniform() < 0.5 ? 0.1 : 0.95) + 0.02 * r.uniform();
                       }));
                       return found ? holds(*found, 0.5) : std::nullopt;
                     }});
  }
  for (const int64_t n : {3, 5, 20, 100})
    for (const bool equal : {true, false})
      out.push_back({"mean over tokens", equal ? "skewed losses" : "of texts of 1 to 9 tokens", n,
                     [=](RandomStream& random) {
                       std::vector<double> sums, counts;
                       for (int64_t i = 0; i < n; ++i) {
                         counts.push_back(equal ? 5 : 1 + static_cast<double>(random.below(9)));
                         sums.push_back(counts.back() * skewed(random));
                       }
                       return holds(ratio(sums, counts), 1);
                     }});
  for (const int64_t n : {3, 5, 10, 50})
    for (const double p : {0.5, 0.9, 0.98})
      for (const double rho : {0.0, 0.5, 0.9})
        out.push_back({"accuracy over tokens",
                       rho == 0     ? p == 0.5   ? "p = 0.5"
                                      : p == 0.9 ? "p = 0.9"
                                                 : "p = 0.98"
                       : rho == 0.5 ? p == 0.5   ? "p = 0.5, correlation 0.5"
                                      : p == 0.9 ? "p = 0.9, correlation 0.5"
                                                 : "p = 0.98, correlation 0.5"
                       : p == 0.5   ? "p = 0.5, correlation 0.9"
                       : p == 0.9   ? "p = 0.9, correlation 0.9"
                                    : "p = 0.98, correlation 0.9",
                       n, [=](RandomStream& random) {
                         std::vector<double> hits;
                         for (int64_t i = 0; i < n; ++i) {
                           const double mean = group_mean(random, p, rho);
                           double& sum = hits.emplace_back();
                           for (int j = 0; j < 20; ++j) sum += random.uniform() < mean;
                         }
                         return holds(grouped_proportion(hits, std::vector<double>(n, 20)), p);
                       }});
  // Two models of accuracies 0.9 and 0.88 that disagree about 6 % of the tokens.
  for (const int64_t n : {5, 10, 20, 50, 100})
    for (const auto& [tokens, equal] :
         {std::pair<int64_t, bool>{1, false}, {20, false}, {20, true}})
      out.push_back({"difference of accuracies",
                     tokens == 1 ? "one token each"
                     : equal     ? "20 equal tokens each"
                                 : "20 tokens each",
                     n, [tokens = tokens, equal = equal, n](RandomStream& random) {
                       std::vector<double> differences;
                       for (int64_t i = 0; i < n; ++i) {
                         double& sum = differences.emplace_back();
                         for (int64_t j = 0; j < (equal ? 1 : tokens); ++j) {
                           const double u = random.uniform();
                           sum += (equal ? 20 : 1) * ((u < 0.04) - (u > 0.98));
                         }
                       }
                       return holds(
                           paired_difference(differences,
                                             std::vector<double>(n, static_cast<double>(tokens))),
                           0.02);
                     }});
  // Ratios of times: mostly within 5 %, some of them far larger.
  for (const int64_t n : {6, 7, 9, 20})
    out.push_back({"median", "3 in 10 values are exponential", n, [=](RandomStream& random) {
                     std::vector<double> x;
                     for (int64_t i = 0; i < n; ++i)
                       x.push_back(random.uniform() < 0.3
                                       ? (random.uniform() < 0.5 ? -1 : 1) * exponential(random)
                                       : 0.05 * random.normal());
                     return holds(median_of(x), 0);
                   }});
  // Times of a kernel against the length, with 10 % of noise.
  for (const int64_t n : {3, 5, 10})
    out.push_back({"exponent", "normal noise", n, [=](RandomStream& random) {
                     std::vector<double> x, y;
                     for (int64_t i = 0; i < n; ++i) {
                       x.push_back(std::pow(2.0, static_cast<double>(i)));
                       y.push_back(std::pow(x.back(), 1.5) * std::exp(0.1 * random.normal()));
                     }
                     const Line line = fit_power(x, y);
                     return holds({line.slope, line.low, line.high, n}, 1.5);
                   }});
  return out;
}

}  // namespace

// 1,000 data sets of each kind; with LONGHAND_COVERAGE=10000 that many, and the table of core/README.md.
TEST_CASE("statistics: intervals hold the truth as often as they say") {
  const char* const given = std::getenv("LONGHAND_COVERAGE");
  const int64_t sets = given ? std::atoll(given) : 1000;
  // Three standard errors of a coverage of 95 % below 93 %.
  const double least = 0.93 - (given ? 0 : 3 * std::sqrt(0.95 * 0.05 / static_cast<double>(sets)));
  for (const CoverageCase& each : coverage_cases()) {
    CAPTURE(each.interval, each.data, each.n);
    int64_t intervals = 0, right = 0;
    for (int64_t i = 0; i < sets; ++i) {
      RandomStream random(Generator(1).fork(each.interval).fork(each.data).fork(each.n).fork(i));
      const std::optional<bool> found = each.trial(random);
      intervals += found.has_value();
      right += found.value_or(false);
    }
    REQUIRE(intervals > sets / 4);
    const double coverage = static_cast<double>(right) / static_cast<double>(intervals);
    CHECK(coverage >= least);
    if (given)
      std::printf("| %s | %s | %lld | %.1f | %.1f |\n", each.interval, each.data,
                  static_cast<long long>(each.n), 100 * coverage,
                  100 * static_cast<double>(intervals) / static_cast<double>(sets));
  }
}

// Ten variants equal to the baseline, whose seeds solve a task or not by chance.
TEST_CASE("statistics: seeds that solve a task by chance are no difference") {
  for (const int n : {2, 3, 5}) {
    CAPTURE(n);
    const int64_t sweeps = 2000;
    int64_t wrong = 0;
    for (int64_t i = 0; i < sweeps; ++i) {
      RandomStream random(Generator(3).fork(n).fork(i));
      const auto seeds = [&] {
        std::vector<double> out;
        for (int s = 0; s < n; ++s)
          out.push_back((random.uniform() < 0.5 ? 0.1 : 0.95) + 0.02 * random.uniform());
        return out;
      };
      const std::vector<double> baseline = seeds();
      std::vector<double> p;
      for (int v = 0; v < 10; ++v) p.push_back(paired_test_of_seeds(seeds(), baseline).p);
      for (const double each : holm(p))
        if (each < 0.05) {
          ++wrong;
          break;
        }
    }
    const double rate = static_cast<double>(wrong) / static_cast<double>(sweeps);
    if (std::getenv("LONGHAND_COVERAGE")) std::printf("family error, %d seeds: %.3f\n", n, rate);
    CHECK(rate <= 0.05 + 3 * std::sqrt(0.05 * 0.95 / static_cast<double>(sweeps)));
  }
}

// Ten variants equal to the baseline, with three seeds.
TEST_CASE("statistics: Holm's correction keeps the error of a family") {
  const char* const given = std::getenv("LONGHAND_COVERAGE");
  const int64_t sweeps = given ? std::atoll(given) : 2000;
  int64_t wrong = 0;
  for (int64_t i = 0; i < sweeps; ++i) {
    RandomStream random(Generator(2).fork(i));
    const auto three = [&] {
      return std::vector{random.normal(), random.normal(), random.normal()};
    };
    const std::vector<double> baseline = three();
    std::vector<double> p;
    for (int v = 0; v < 10; ++v) p.push_back(paired_test(three(), baseline).p);
    p = holm(p);
    wrong += *std::min_element(p.begin(), p.end()) < 0.05;
  }
  const double rate = static_cast<double>(wrong) / static_cast<double>(sweeps);
  if (given) std::printf("family error of Holm's correction: %.3f\n", rate);
  CHECK(rate <= 0.05 + 3 * std::sqrt(0.05 * 0.95 / static_cast<double>(sweeps)));
}
