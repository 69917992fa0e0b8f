// Plot: one chart, ready to be drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "longhand/train/lab/report/canvas.h"

namespace longhand::train {

/// A place in a chart. Where the axis holds categories, x is the index of one.
struct PlotPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;     // of the interval; NaN: none
  std::vector<double> seeds{};  // the values of which y is the mean
  std::string name{};           // what it stands for, if not its series
  int64_t hue = -1;             // of a bar, if not that of its series
};

/// A line, or points.
struct Series {
  std::string label;
  int64_t hue = 0;       // index into the palette; -1: grey, of a theory
  size_t variation = 0;  // among series of the same hue: other dashes and markers
  std::vector<PlotPoint> points{};
  bool line = true;    // joins the points
  bool band = false;   // the interval is an area; otherwise whiskers
  bool faint = false;  // thin, dashed, without markers and without a key
};

/// Squares of a heat map; rows are counted from above.
struct HeatMap {
  std::string label;
  std::vector<std::string> columns{}, rows{};  // names; empty: they are numbered
  int64_t width = 0, height = 0;
  std::vector<double> values{};      // width x height; NaN: none
  std::vector<std::string> texts{};  // of each square; empty: none are shown
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
  /// y is a loss: less is better, and runs that diverged leave the others behind.
  bool falls = false;
  /// Of a curve, spread over it; 0: each point has one, and says what it stands for.
  size_t markers = 0;
  std::vector<std::string> categories{};  // of bars, and the lanes of a timeline
  std::vector<Series> series{};
  std::vector<HeatMap> maps{};
  std::vector<TimelineSpan> spans{};
  std::vector<std::string> facts{};  // sentences below it

  bool empty() const { return series.empty() && maps.empty() && spans.empty(); }
};

/// The number of colours that can be told apart; a plot has at most so many.
constexpr int64_t hues = 10;

/// Draws a plot without its title, and returns the contents of the file. Adds a sentence to `facts` for everything
/// that the picture cannot show, such as the ends of intervals beyond its axes.
std::string draw(const Plot& plot, Canvas& canvas, std::vector<std::string>* facts = nullptr);

/// The colours of charts as a style sheet: --h0 to --h9, and those of a dark page in place of those that charts are
/// drawn in.
std::string style_of_charts();

/// A number as an axis or a legend shows it: four digits, 12k, 1.5M, 2e-5.
std::string tick_text(double value);

}  // namespace longhand::train
