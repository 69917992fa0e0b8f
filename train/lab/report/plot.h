// Plot: one chart, ready to be drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "longhand/train/lab/report/canvas.h"

namespace longhand::train {

/// A point in a chart. On a categorical axis, x is the index of a category.
struct PlotPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;     // ends of the interval; NaN: none
  std::vector<double> seeds{};  // the values whose mean is y
  std::string name{};           // its meaning, if not its series
  int64_t hue = -1;             // of a bar, if not that of its series
};

/// A line, or points.
struct Series {
  std::string label;
  int64_t hue = 0;       // index into the palette; -1: grey, for theory
  size_t variation = 0;  // among series of the same hue: different dashes and markers
  std::vector<PlotPoint> points{};
  bool line = true;    // connects the points
  bool band = false;   // draws the interval as an area; otherwise as whiskers
  bool faint = false;  // thin and dashed, without markers and legend entry
};

/// Squares of a heat map; rows are counted from the top.
struct HeatMap {
  std::string label;
  std::vector<std::string> columns{}, rows{};  // names; empty: numbered
  int64_t width = 0, height = 0;
  std::vector<double> values{};      // width x height; NaN: none
  std::vector<std::string> texts{};  // in each square; empty: none
};

/// A span of a timeline.
struct TimelineSpan {
  size_t lane = 0, series = 0;
  double begin = 0, end = 0;
};

struct Plot {
  enum class Kind { lines, bars, heat, timeline };

  std::string title{};
  std::string x{}, y{};  // titles of the axes
  Kind kind = Kind::lines;
  bool log_x = false, log_y = false;
  bool unit_y = false;  // y is an accuracy: the axis is 0 to 1
  /// y is a loss: lower is better, and runs that diverged stand apart from the others.
  bool falls = false;
  /// Markers spread over a curve; 0: one per point, each with its own meaning.
  size_t markers = 0;
  std::vector<std::string> categories{};  // of bars, or the lanes of a timeline
  std::vector<Series> series{};
  std::vector<HeatMap> maps{};
  std::vector<TimelineSpan> spans{};
  std::vector<std::string> facts{};  // sentences below the chart

  bool empty() const { return series.empty() && maps.empty() && spans.empty(); }
};

/// The number of distinguishable colours, and the most a plot may have.
constexpr int64_t hues = 10;

/// Draws a plot without its title and returns the contents of the file. Adds a sentence to `facts`
/// for everything the picture cannot show, such as ends of intervals beyond its axes.
std::string draw(const Plot& plot, Canvas& canvas, std::vector<std::string>* facts = nullptr);

/// Returns the colours of charts as a style sheet: --h0 to --h9, and the colours of a dark page
/// that replace those in which charts are drawn.
std::string style_of_charts();

/// Formats a number for an axis or a legend: four digits, 12k, 1.5M, 2e-5.
std::string tick_text(double value);

}  // namespace longhand::train
