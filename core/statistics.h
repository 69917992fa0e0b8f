// Statistics of small samples: means with confidence intervals, tests, quantiles, fitted lines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace longhand {

/// The mean of a sample and its 95 % confidence interval.
struct Estimate {
  double mean = 0;           // NaN without values
  double low = 0, high = 0;  // NaN for a single value, which says nothing about the spread
  int64_t count = 0;
};

/// The mean of independent values, with the interval mean +- t s / sqrt(n) of Student's
/// distribution with n - 1 degrees of freedom.
Estimate estimate(std::span<const double> values);

/// The mean m of independent positive values, such as times and errors, with an interval for its
/// logarithm by the delta method, m e^(+- t s / (m sqrt(n))), which stays above 0 and is symmetric
/// on a logarithmic axis. estimate() if the mean is not above 0 or a value is negative.
Estimate estimate_of_positive(std::span<const double> values);

/// The mean accuracy of several seeds: estimate(), with the interval clipped to 0 … 1. No interval
/// if all are equal or two_groups() has a value: no interval from so few values would be valid.
Estimate accuracy_of_seeds(std::span<const double> accuracies);

/// The index of the value above the largest gap (first of several) in at least two sorted values.
size_t largest_gap(std::span<const double> sorted);

/// Accuracies of seeds in two groups.
struct TwoGroups {
  int64_t upper = 0, seeds = 0;  // seeds in the upper group, and in all
  double low = 0;                // the largest accuracy of the lower group
  double high = 0;               // the smallest of the upper one
};
/// Splits the accuracies of two to nine seeds in two groups, if the largest gap between neighbours
/// is at least 0.2 and four times the range on either side of it.
inline constexpr double group_gap = 0.2;
std::optional<TwoGroups> two_groups(std::span<const double> accuracies);

/// The fraction of seeds in the upper of the two_groups(), with Wilson's interval, if all
/// accuracies of that group are at least 0.9: some seeds solved the task, and others did not.
inline constexpr double solved_from = 0.9;
std::optional<Estimate> solved(std::span<const double> accuracies);

/// The fraction of successes among n trials, with Wilson's 95 % interval, which stays within 0 … 1.
/// Throws Error for n < 1.
Estimate proportion(double successes, int64_t n);

/// The ratio of sums Σ values / Σ counts, such as the mean over the tokens of all examples, with
/// the 95 % interval r ± t sqrt(g / (g - 1) Σ (v_i - r c_i)²) / Σ c_i for independent pairs, where
/// t is Student's quantile for g - 1 degrees of freedom and g = (Σ c_i)² / Σ c_i² (Kish 1965), n
/// for equal counts. With all counts 1 this is estimate(). NaN if the counts sum to 0. Throws Error
/// unless both have the same number of elements.
Estimate ratio(std::span<const double> values, std::span<const double> counts);

/// The difference of two fractions of successes, paired by group: Σ differences / Σ trials, with
/// the difference in each group's successes. The 95 % interval is that of ratio() with two more
/// groups of the mean number of trials t and differences ± s / √2, clipped to -1 … 1: the half
/// observation that Agresti and Min (2005) add to each cell of the 2 x 2 table. Without it, few
/// groups that differ underestimate the spread. s is the largest difference of a group, or t if
/// fewer than five groups differ, which do not show how much they may.
Estimate paired_difference(std::span<const double> differences, std::span<const double> trials);

/// The fraction of successes if trials come in independent groups, such as an example's tokens.
/// With g = (Σ t_i)² / Σ t_i² groups (Kish 1965), the 95 % interval is the intersection of two:
///
/// - Wilson's for p (1 - p) / V trials, at most Σ t_i, where V = g / (g - 1) Σ (s_i - p t_i)² /
///   (Σ t_i)² is the variance of p between groups (g trials if V is 0), with Student's quantile in
///   place of the normal one. Its degrees of freedom are the number of groups with a failure, or
///   with a success if that is smaller, and at most g - 1: few groups say little about V.
/// - Clopper and Pearson's (1934) for g trials, whose variance is never smaller.
///
/// NaN without trials, no interval for one group. Throws Error if the numbers of elements differ.
Estimate grouped_proportion(std::span<const double> successes, std::span<const double> trials);

/// The paired t test of a against b, two-sided: whether the mean of a_i - b_i is 0.
struct PairedTest {
  Estimate difference;
  double p = 0;  // NaN, like the interval, for fewer than two pairs or equal differences
};
/// Throws Error unless both have the same number of values.
PairedTest paired_test(std::span<const double> a, std::span<const double> b);

/// paired_test() of accuracies, without p and interval if two_groups() has a value for a, b or both
/// together: with few seeds in two groups, the t test underestimates the spread.
PairedTest paired_test_of_seeds(std::span<const double> a, std::span<const double> b);

/// P-values of several tests, corrected for their number (Holm 1979): in increasing order, the i-th
/// of n is multiplied by n - i + 1, and raised to at least those before it. The probability that
/// any true hypothesis has one below a level is at most that level. NaN stays NaN, not counted.
std::vector<double> holm(const std::vector<double>& p);

/// The p-quantile of Student's distribution with the given degrees of freedom, 0 < p < 1. Throws
/// Error for other arguments.
double student_quantile(double p, double degrees);

/// The p-quantile of a sample, 0 <= p <= 1, by linear interpolation between its sorted values.
/// Throws Error for an empty sample.
double quantile(std::vector<double> values, double p);

/// The median of independent values, with the distribution-free 95 % interval between the k-th
/// smallest and the k-th largest of them; no interval for fewer than six. Estimate::mean is the
/// median.
Estimate median_of(std::span<const double> values);

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
