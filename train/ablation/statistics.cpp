#include "longhand/train/ablation/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22),
/// which converges fast for x < (a + 1) / (a + b + 2); evaluated with the modified Lentz method.
double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(1 - x, b, a);
  constexpr double tiny = 1e-300, precision = 1e-15;
  constexpr int most = 10000;
  const auto away_from_zero = [](double v) { return std::abs(v) < tiny ? tiny : v; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m <= most; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double factor = 1;
    for (const double term : {even, odd}) {
      d = 1 / away_from_zero(1 + term * d);
      c = away_from_zero(1 + term / c);
      factor = c * d;
      fraction *= factor;
    }
    if (std::abs(factor - 1) < precision) break;
  }
  const double log_front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  return std::exp(log_front) * fraction / a;
}

/// P(T > t) for t >= 0, without cancellation.
double upper_tail(double t, double degrees) {
  return incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2;
}

}  // namespace

double student_t_cdf(double t, double degrees) {
  check<Error>(degrees > 0, "student_t_cdf: expected degrees of freedom above 0, got ", degrees);
  if (std::isnan(t)) return nan;
  return t >= 0 ? 1 - upper_tail(t, degrees) : upper_tail(-t, degrees);
}

double student_t_quantile(double p, double degrees) {
  check<Error>(p > 0 && p < 1, "student_t_quantile: expected a probability between 0 and 1, got ",
               p);
  if (p < 0.5) return -student_t_quantile(1 - p, degrees);
  double low = 0, high = 1;
  while (student_t_cdf(high, degrees) < p) high *= 2;
  while (high - low > 1e-12 * high) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) break;
    (student_t_cdf(middle, degrees) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

Interval mean_interval(std::span<const double> values, double confidence) {
  const auto n = static_cast<double>(values.size());
  Interval out{nan, nan, nan, static_cast<int64_t>(values.size())};
  if (values.empty()) return out;
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  const double error = std::sqrt(squares / (n - 1) / n);
  const double half = error * student_t_quantile((1 + confidence) / 2, n - 1);
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

PairedTest paired_test(std::span<const double> a, std::span<const double> b) {
  check<Error>(a.size() == b.size(), "paired_test: expected as many values of both, got ", a.size(),
               " and ", b.size());
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  PairedTest out{mean_interval(differences), nan};
  if (differences.size() < 2) return out;
  const auto n = static_cast<double>(differences.size());
  double squares = 0;
  for (const double d : differences)
    squares += (d - out.difference.mean) * (d - out.difference.mean);
  const double error = std::sqrt(squares / (n - 1) / n);
  if (error == 0)
    out.p = out.difference.mean == 0 ? 1 : 0;
  else
    out.p = 2 * upper_tail(std::abs(out.difference.mean) / error, n - 1);
  return out;
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order;
  for (size_t i = 0; i < p.size(); ++i)
    if (!std::isnan(p[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return p[x] < p[y]; });
  std::vector<double> out(p.size(), nan);
  double before = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    before = std::max(before, std::min(1.0, p[order[i]] * static_cast<double>(order.size() - i)));
    out[order[i]] = before;
  }
  return out;
}

}  // namespace longhand::train
