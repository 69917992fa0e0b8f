#include "longhand/core/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <limits>

#include "longhand/core/error.h"

namespace longhand {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// P(T > t) for t >= 0, without cancellation.
double upper_tail(double t, double degrees) {
  using boost::math::students_t;
  return boost::math::cdf(boost::math::complement(students_t(degrees), t));
}

constexpr double z = 1.959963984540054;  // the 0.975-quantile of the normal distribution

// Wilson's interval with the quantile q; n need not be an integer.
Estimate wilson(double p, double n, int64_t count, double q = z) {
  const double scale = 1 / (1 + q * q / n);
  const double middle = scale * (p + q * q / (2 * n));
  const double half = scale * q * std::sqrt(p * (1 - p) / n + q * q / (4 * n * n));
  // At the ends of the range, rounding must not exclude p itself.
  return {p, std::clamp(middle - half, 0.0, p), std::clamp(middle + half, p, 1.0), count};
}

// Clopper and Pearson's interval for the fraction p of n trials; n need not be an integer.
Estimate exact_binomial(double p, double n) {
  const double k = p * n;
  return {p, p > 0 ? boost::math::ibeta_inv(k, n - k + 1, 0.025) : 0,
          p < 1 ? boost::math::ibeta_inv(k + 1, n - k, 0.975) : 1, 0};
}

// Σ values / Σ counts, Σ counts, Σ (value - ratio count)², and (Σ counts)² / Σ counts².
struct Ratio {
  double value = 0, count = 0, squares = 0, groups = 0;
};
Ratio ratio_of(std::span<const double> values, std::span<const double> counts) {
  check<Error>(values.size() == counts.size(), "ratio: expected as many values as counts, got ",
               values.size(), " and ", counts.size());
  Ratio out;
  double count_squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    out.value += values[i], out.count += counts[i];
    count_squares += counts[i] * counts[i];
  }
  out.value /= out.count;
  out.groups = out.count * out.count / count_squares;
  for (size_t i = 0; i < values.size(); ++i) {
    const double residual = values[i] - out.value * counts[i];
    out.squares += residual * residual;
  }
  return out;
}

// The standard error of the mean.
double standard_error(std::span<const double> values, double mean) {
  const auto n = static_cast<double>(values.size());
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace

double student_quantile(double p, double degrees) {
  check(p > 0 && p < 1 && degrees > 0, "student_quantile: expected 0 < p < 1 and degrees > 0, got ",
        p, " and ", degrees);
  return boost::math::quantile(boost::math::students_t(degrees), p);
}

Estimate estimate(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Estimate out{values.empty() ? nan : 0, nan, nan, static_cast<int64_t>(values.size())};
  for (const double x : values) out.mean += x / n;
  if (values.size() < 2) return out;
  const double half = student_quantile(0.975, n - 1) * standard_error(values, out.mean);
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

Estimate estimate_of_positive(std::span<const double> values) {
  Estimate out = estimate(values);
  const bool is_positive = out.mean > 0 && *std::ranges::min_element(values) >= 0;
  if (!is_positive || values.size() < 2) return out;
  const double factor = std::exp((out.high - out.mean) / out.mean);
  out.low = out.mean / factor;
  out.high = out.mean * factor;
  return out;
}

Estimate accuracy_of_seeds(std::span<const double> accuracies) {
  Estimate out = estimate(accuracies);
  if (out.low == out.high || two_groups(accuracies)) {
    out.low = out.high = nan;
  } else {
    out.low = std::max(out.low, 0.0);
    out.high = std::min(out.high, 1.0);
  }
  return out;
}

size_t largest_gap(std::span<const double> sorted) {
  size_t upper = 1;
  for (size_t i = 2; i < sorted.size(); ++i)
    if (sorted[i] - sorted[i - 1] > sorted[upper] - sorted[upper - 1]) upper = i;
  return upper;
}

std::optional<TwoGroups> two_groups(std::span<const double> accuracies) {
  const auto n = std::ssize(accuracies);
  if (n < 2 || n > 9) return {};
  std::vector<double> sorted(accuracies.begin(), accuracies.end());
  std::ranges::sort(sorted);
  const size_t upper = largest_gap(sorted);
  const double gap = sorted[upper] - sorted[upper - 1];
  const double spread = std::max(sorted[upper - 1] - sorted.front(), sorted.back() - sorted[upper]);
  if (!(gap >= group_gap && gap >= 4 * spread)) return {};
  return TwoGroups{n - static_cast<int64_t>(upper), n, sorted[upper - 1], sorted[upper]};
}

std::optional<Estimate> solved(std::span<const double> accuracies) {
  const auto found = two_groups(accuracies);
  if (!found || found->high < solved_from) return {};
  return proportion(static_cast<double>(found->upper), found->seeds);
}

PairedTest paired_test(std::span<const double> a, std::span<const double> b) {
  check<Error>(a.size() == b.size(), "paired_test: expected as many values of both, got ", a.size(),
               " and ", b.size());
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  PairedTest out{estimate(differences), nan};
  if (differences.size() < 2) return out;
  const double error = standard_error(differences, out.difference.mean);
  if (error <= 1e-13 * std::abs(out.difference.mean)) {  // equal, up to rounding
    out.difference.low = out.difference.high = nan;
    return out;
  }
  out.p = 2 * upper_tail(std::abs(out.difference.mean) / error,
                         static_cast<double>(differences.size() - 1));
  return out;
}

PairedTest paired_test_of_seeds(std::span<const double> a, std::span<const double> b) {
  PairedTest out = paired_test(a, b);
  std::vector<double> both(a.begin(), a.end());
  both.insert(both.end(), b.begin(), b.end());
  if (two_groups(a) || two_groups(b) || two_groups(both))
    out.p = out.difference.low = out.difference.high = nan;
  return out;
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order;
  for (size_t i = 0; i < p.size(); ++i)
    if (!std::isnan(p[i])) order.push_back(i);
  std::ranges::stable_sort(order, [&](size_t x, size_t y) { return p[x] < p[y]; });
  std::vector<double> out(p.size(), nan);
  double before = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    before = std::max(before, std::min(1.0, p[order[i]] * static_cast<double>(order.size() - i)));
    out[order[i]] = before;
  }
  return out;
}

Estimate proportion(double successes, int64_t n) {
  check(n >= 1, "proportion: expected at least one trial, got ", n);
  const auto trials = static_cast<double>(n);
  return wilson(successes / trials, trials, n);
}

Estimate ratio(std::span<const double> values, std::span<const double> counts) {
  const Ratio r = ratio_of(values, counts);
  if (r.count == 0) return {nan, nan, nan, std::ssize(values)};
  Estimate out{r.value, nan, nan, std::ssize(values)};
  if (!(r.groups > 1 + 1e-9)) return out;
  const double t = student_quantile(0.975, r.groups - 1);
  const double half = t * std::sqrt(r.groups / (r.groups - 1) * r.squares) / r.count;
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

Estimate paired_difference(std::span<const double> differences, std::span<const double> trials) {
  Estimate out = ratio(differences, trials);
  double mean = 0, largest = 0;
  for (const double t : trials) mean += t / static_cast<double>(trials.size());
  int64_t different = 0;
  for (const double d : differences) {
    largest = std::max(largest, std::abs(d));
    different += d != 0;
  }
  const double size = std::sqrt(0.5) * (different < 5 ? mean : largest);
  std::vector<double> values(differences.begin(), differences.end()),
      counts(trials.begin(), trials.end());
  values.insert(values.end(), {size, -size});
  counts.insert(counts.end(), 2, mean);
  const Estimate more = ratio(values, counts);
  out.low = std::max(-1.0, std::min(more.low, out.mean));
  out.high = std::min(1.0, std::max(more.high, out.mean));
  return out;
}

Estimate grouped_proportion(std::span<const double> successes, std::span<const double> trials) {
  const Ratio r = ratio_of(successes, trials);
  if (r.count == 0) return {nan, nan, nan, std::ssize(successes)};
  Estimate out{r.value, nan, nan, std::ssize(successes)};
  if (!(r.groups > 1 + 1e-9)) return out;
  const double p = r.value, g = r.groups;
  const double variance = g / (g - 1) * r.squares / (r.count * r.count);
  // Rounding may leave a nonzero variance where there is none.
  const bool spread = p > 0 && p < 1 && variance > 1e-24;
  double with_failure = 0, with_success = 0;
  for (size_t i = 0; i < successes.size(); ++i) {
    with_failure += successes[i] < trials[i];
    with_success += successes[i] > 0;
  }
  const double degrees =
      std::clamp(std::min(with_failure, with_success), std::min(1.0, g - 1), g - 1);
  const Estimate by_variance = wilson(p, spread ? std::min(p * (1 - p) / variance, r.count) : g,
                                      out.count, student_quantile(0.975, degrees));
  const Estimate at_most = exact_binomial(p, g);
  out.low = std::max(by_variance.low, at_most.low);
  out.high = std::min(by_variance.high, at_most.high);
  return out;
}

double quantile(std::vector<double> values, double p) {
  check(!values.empty() && p >= 0 && p <= 1, "quantile: expected values and 0 <= p <= 1, got ",
        values.size(), " values and p = ", p);
  std::ranges::sort(values);
  const double at = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - std::floor(at)) * (values[above] - values[below]);
}

Estimate median_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  Estimate out{nan, nan, nan, std::ssize(sorted)};
  if (sorted.empty()) return out;
  out.mean = quantile(sorted, 0.5);
  // The number of values below the median is binomial.
  const boost::math::binomial below(static_cast<double>(out.count), 0.5);
  int64_t k = 0;
  while (boost::math::cdf(below, static_cast<double>(k)) <= 0.025) ++k;
  if (k == 0) return out;
  out.low = sorted[k - 1];
  out.high = sorted[out.count - k];
  return out;
}

Line fit_line(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size() && x.size() >= 2,
        "fit_line: expected as many x as y, at least two, got ", x.size(), " and ", y.size());
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) mean_x += x[i] / n, mean_y += y[i] / n;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  check(xx > 0, "fit_line: expected at least two different x");
  Line line{xy / xx, mean_y - xy / xx * mean_x, nan, nan};
  if (x.size() == 2) return line;
  double residual = 0;
  for (size_t i = 0; i < x.size(); ++i)
    residual += std::pow(y[i] - line.slope * x[i] - line.intercept, 2);
  const double half = student_quantile(0.975, n - 2) * std::sqrt(residual / (n - 2) / xx);
  line.low = line.slope - half;
  line.high = line.slope + half;
  return line;
}

Line fit_power(std::span<const double> x, std::span<const double> y) {
  std::vector<double> log_x, log_y;
  for (const auto& [from, to] : {std::pair(x, &log_x), std::pair(y, &log_y)})
    for (const double value : from) {
      check(value > 0, "fit_power: expected values above 0, got ", value);
      to->push_back(std::log(value));
    }
  return fit_line(log_x, log_y);
}

}  // namespace longhand
