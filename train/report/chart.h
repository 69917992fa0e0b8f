// A line chart as SVG.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longhand::train {

struct Point {
  double x, y;
};

/// One curve of a chart.
struct Curve {
  std::vector<Point> points;  // not empty
  size_t colour = 0;          // class cN and dN of the page's style, N = colour modulo 8
  bool thin = false;          // else thick, with a dot at its end
};

/// A figure with the curves against the step: both axes begin at 0 or below, and end where the
/// largest value does. Empty text without curves.
std::string svg_chart(const std::string& title, const std::vector<Curve>& curves);

}  // namespace longhand::train
