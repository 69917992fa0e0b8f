// Statistics of small samples: means with confidence intervals, tests, quantiles, fitted lines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhand {

/// The mean of a sample and its 95 % confidence interval.
struct Estimate {
  double mean = 0;           // NaN without values
  double low = 0, high = 0;  // NaN for a single value, which says nothing about the spread
  int64_t count = 0;
};

/// The mean of independent values, with the interval mean +- t s / sqrt(n) of Student's distribution
/// with n - 1 degrees of freedom.
Estimate estimate(std::span<const double> values);

/// The same with the ends of its interval cut to low … high: means of accuracies are within 0 … 1.
Estimate clipped(Estimate estimate, double low, double high);

/// The fraction of successes among n trials, with Wilson's 95 % interval, which stays within 0 … 1.
/// Throws Error for n < 1.
Estimate proportion(double successes, int64_t n);

/// The ratio of sums Σ values / Σ counts, such as the mean over the tokens of all examples, with the
/// normal 95 % interval for independent pairs: r ± 1.96 sqrt(n / (n - 1) Σ (v_i - r c_i)²) / Σ c_i.
/// With all counts 1 this is the mean of the values. NaN if the counts sum to 0. Throws Error unless
/// both have the same number of elements.
Estimate ratio(std::span<const double> values, std::span<const double> counts);

/// The fraction of successes if trials come in independent groups, such as the tokens of one example:
/// Wilson's 95 % interval for p (1 - p) / V trials, where V = Σ (s_i - p t_i)² / (Σ t_i)² is the
/// variance of p between groups (for as many trials as groups if V is 0). With one trial in each group
/// this is proportion(). NaN without trials. Throws Error if the numbers of elements differ.
Estimate grouped_proportion(std::span<const double> successes, std::span<const double> trials);

/// The paired t test of a against b, two-sided: whether the mean of a_i - b_i is 0.
struct PairedTest {
  Estimate difference;
  double p = 0;  // NaN with fewer than two pairs; 1 if all differences are 0
};
/// Throws Error unless both have the same number of values.
PairedTest paired_test(std::span<const double> a, std::span<const double> b);

/// P-values of several tests, corrected for their number (Holm 1979): in increasing order, the i-th
/// of n is multiplied by n - i + 1, and is at least as large as those before it. The probability
/// that any true hypothesis has one below a level is at most that level. NaN stays NaN and counts
/// as no test.
std::vector<double> holm(const std::vector<double>& p);

/// P(T <= t) of Student's distribution with the given degrees of freedom. Throws Error unless these
/// are above 0.
double student_cdf(double t, double degrees);

/// The p-quantile of Student's distribution with the given degrees of freedom, 0 < p < 1. Throws
/// Error for other arguments.
double student_quantile(double p, double degrees);

/// The p-quantile of a sample, 0 <= p <= 1, by linear interpolation between its sorted values.
/// Throws Error for an empty sample.
double quantile(std::vector<double> values, double p);

/// A line y = slope x + intercept fitted by least squares.
struct Line {
  double slope = 0, intercept = 0;
  double low = 0, high = 0;  // 95 % interval of the slope, from the residuals; NaN for two points
};
/// Throws Error for fewer than two different x, or if x and y differ in number.
Line fit_line(std::span<const double> x, std::span<const double> y);
/// The power law y = c x^slope: fit_line() of the logarithms. All values must be above 0.
Line fit_power(std::span<const double> x, std::span<const double> y);

}  // namespace longhand
