#include "longhand/train/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhand::train {
namespace {

/// Returns about `count` round numbers that span [low, high].
std::vector<double> ticks(double low, double high, int count) {
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power * 10;
  for (const double nice : {1.0, 2.0, 5.0})
    if (nice * power >= raw) {
      step = nice * power;
      break;
    }
  std::vector<double> out;
  for (double t = std::ceil(low / step) * step; t <= high + step * 1e-9; t += step)
    out.push_back(std::abs(t) < step * 1e-9 ? 0 : t);
  return out;
}

constexpr int width = 560, height = 320, left = 56, right = 12, top = 12, bottom = 40;

}  // namespace

std::string svg_chart(const std::string& title, const std::vector<Curve>& curves) {
  if (curves.empty()) return "";
  double x_low = 0, x_high = 1, y_low = 0, y_high = -std::numeric_limits<double>::infinity();
  for (const Curve& c : curves)
    for (const Point& p : c.points) {
      x_high = std::max(x_high, p.x);
      y_low = std::min(y_low, p.y);
      y_high = std::max(y_high, p.y);
    }
  y_high = y_high > y_low ? y_high + (y_high - y_low) * 0.04 : y_low + 1;
  const auto sx = [&](double x) {
    return left + (x - x_low) / (x_high - x_low) * (width - left - right);
  };
  const auto sy = [&](double y) {
    return height - bottom - (y - y_low) / (y_high - y_low) * (height - top - bottom);
  };
  std::string svg = fmt::format(
      "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{} against the step\">\n",
      title, width, height, title);
  for (const double y : ticks(y_low, y_high, 5))
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" class=\"y\">{:.4g}</text>\n",
        left, width - right, sy(y), sy(y), left - 6, sy(y) + 4, y);
  for (const double x : ticks(x_low, x_high, 6))
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" class=\"x\">{:.6g}</text>\n", sx(x),
                       height - bottom + 18, x);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" class=\"x\">step</text>\n",
                     (left + width - right) / 2, height - 4);
  for (const Curve& c : curves) {
    std::string points;
    for (const Point& p : c.points) points += fmt::format("{:.1f},{:.1f} ", sx(p.x), sy(p.y));
    svg += fmt::format("<polyline class=\"c{} {}\" points=\"{}\"/>\n", c.colour % 8,
                       c.thin ? "thin" : "thick", points);
    if (!c.thin)
      svg += fmt::format("<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n",
                         c.colour % 8, sx(c.points.back().x), sy(c.points.back().y));
  }
  return svg + "</svg></figure>\n";
}

}  // namespace longhand::train
