// Statistics of repeated runs: intervals over seeds, tests against a baseline.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhand::train {

/// P(T <= t) of Student's t distribution with `degrees` > 0 degrees of freedom.
double student_t_cdf(double t, double degrees);
/// The t with student_t_cdf(t, degrees) = p. Throws Error unless 0 < p < 1.
double student_t_quantile(double p, double degrees);

/// A mean with its confidence interval.
struct Interval {
  double mean, low, high;  // NaN where there are too few values
  int64_t count;
};

/// The mean of independent values and the interval that covers the true mean with probability
/// `confidence`, if they are normal: mean ± t s / √n. The interval takes at least two values.
Interval mean_interval(std::span<const double> values, double confidence = 0.95);

/// The paired t test of a against b, two-sided: whether the mean of a_i - b_i is 0.
struct PairedTest {
  Interval difference;
  double p;  // NaN with fewer than two pairs; 1 if all differences are 0
};
/// Throws Error unless both have the same number of values.
PairedTest paired_test(std::span<const double> a, std::span<const double> b);

/// P-values of several tests, corrected for their number (Holm 1979): in increasing order, the i-th
/// of n is multiplied by n - i + 1, and is at least as large as those before it. The probability
/// that any true hypothesis has one below a level is at most that level. NaN stays NaN and counts
/// as no test.
std::vector<double> holm(const std::vector<double>& p);

}  // namespace longhand::train
