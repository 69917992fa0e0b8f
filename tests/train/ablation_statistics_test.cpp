#include <cmath>
#include <limits>
#include <numbers>

#include "longhand/core/error.h"
#include "longhand/train/ablation/statistics.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;

namespace {

// Student's sleep data (1908): hours of sleep gained by ten patients with two drugs.
const std::vector<double> first_drug = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
const std::vector<double> second_drug = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

}  // namespace

TEST_CASE("Student's t distribution: closed forms and tables") {
  for (const double t : {-30.0, -2.0, -0.1, 0.0, 0.5, 3.0, 1000.0}) {
    CAPTURE(t);
    CHECK(student_t_cdf(t, 1) == Approx(0.5 + std::atan(t) / std::numbers::pi).margin(1e-14));
    CHECK(student_t_cdf(t, 2) == Approx(0.5 + t / (2 * std::sqrt(2 + t * t))).margin(1e-14));
    // With many degrees of freedom it is the normal distribution.
    CHECK(student_t_cdf(t, 1e7) == Approx(std::erfc(-t / std::numbers::sqrt2) / 2).margin(1e-6));
  }
  for (const auto& [degrees, t] : {std::pair{1.0, 12.7062},
                                   {2.0, 4.30265},
                                   {4.0, 2.77645},
                                   {9.0, 2.26216},
                                   {30.0, 2.04227},
                                   {120.0, 1.97993}}) {
    CAPTURE(degrees);
    CHECK(student_t_quantile(0.975, degrees) == Approx(t).epsilon(2e-6));
    CHECK(student_t_quantile(0.025, degrees) == Approx(-t).epsilon(2e-6));
  }
  CHECK(student_t_quantile(0.5, 3) == Approx(0).margin(1e-10));
  CHECK_THROWS_AS(student_t_quantile(1, 3), Error);
  CHECK_THROWS_AS(student_t_cdf(1, 0), Error);
}

TEST_CASE("the paired test of Student's sleep data") {
  // As R's t.test(extra ~ group, data = sleep, paired = TRUE) prints it.
  const PairedTest test = paired_test(first_drug, second_drug);
  CHECK(test.difference.mean == Approx(-1.58));
  CHECK(test.difference.low == Approx(-2.4598858).epsilon(1e-7));
  CHECK(test.difference.high == Approx(-0.7001142).epsilon(1e-7));
  CHECK(test.difference.count == 10);
  CHECK(test.p == Approx(0.002833).epsilon(2e-4));
  CHECK(paired_test(second_drug, first_drug).p == Approx(test.p));
}

TEST_CASE("intervals and tests with few or equal values") {
  CHECK(mean_interval(std::vector<double>{}).count == 0);
  CHECK(std::isnan(mean_interval(std::vector<double>{}).mean));
  const Interval one = mean_interval(std::vector<double>{3});
  CHECK(one.mean == 3);
  CHECK(std::isnan(one.low));
  // Two values: mean ± 12.7062 s / √2, where s / √2 is half of their distance.
  const Interval two = mean_interval(std::vector<double>{1, 2});
  CHECK(two.high - two.mean == Approx(12.7062 / 2).epsilon(1e-5));
  const std::vector<double> same = {1, 2, 3}, more = {2, 3, 4};
  CHECK(paired_test(same, same).p == 1);
  CHECK(paired_test(same, more).p == 0);
  CHECK(std::isnan(paired_test(std::vector<double>{1}, std::vector<double>{2}).p));
  CHECK_THROWS_AS(paired_test(same, std::vector<double>{1}), Error);
}

TEST_CASE("Holm's correction") {
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
