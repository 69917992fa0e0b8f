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
  size_t colour = 0;          // CSS classes cN and dN of the page, N = colour modulo 8
  bool thin = false;          // if false, thick with a dot at its end
};

/// Returns a figure of the curves against the step, whose axes begin at 0 or below and end at the
/// largest value; an empty string if there are no curves.
std::string svg_chart(const std::string& title, const std::vector<Curve>& curves);

}  // namespace longhand::train
