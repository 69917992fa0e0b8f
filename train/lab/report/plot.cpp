#include "longhand/train/lab/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

namespace longhand::train {
namespace {

const std::string ink = "#1b1f24", dim = "#59636e", grid = "#e3e7ec", paper = "#ffffff";
/// Any two differ by at least 21 in CIEDE2000, and by 11 in the eyes of dichromats (Machado et al.
/// 2009). The contrast is at least 3 to white paper and 4 to the dark page.
const std::array<std::string, hues> palette = {"#0072b2", "#d55e00", "#2ea75f", "#881d09",
                                               "#9c7efb", "#09565b", "#936567", "#403798",
                                               "#514a3b", "#849695"},
                                    dark_palette = {"#24b5ff", "#f39946", "#32f69a", "#d4584a",
                                                    "#ae7db5", "#258981", "#eabbc0", "#5b74f7",
                                                    "#a5a18a", "#d0dcf9"};
const std::array<std::vector<double>, 4> dashes = {
    std::vector<double>{}, {6, 4}, {1, 3.5}, {9, 3.5, 1, 3.5}};

const std::string& colour_of(int64_t hue) {
  return hue < 0 ? dim : palette[static_cast<size_t>(hue % hues)];
}
const std::string& colour_of(const Series& series) { return colour_of(series.hue); }
const std::vector<double>& dash_of(const Series& series) {
  return dashes[series.hue < 0 || series.faint ? 2 : series.variation % dashes.size()];
}

/// Part of a line around a point, and its copies after a quarter, half and three quarter turn.
Line turned(Line part) {
  Line out;
  for (int turn = 0; turn < 4; ++turn)
    for (Point& each : part) {
      out.push_back(each);
      each = {-each.y, each.x};
    }
  return out;
}
/// Lines around a point, in units of the marker size. Markers of the second five hues are hollow.
const Line markers[] = {turned({{-0.38, -0.92}, {0.38, -0.92}}),
                        {{0, -1.1}, {1.1, 0.85}, {-1.1, 0.85}},
                        turned({{-0.8, -0.8}}),
                        turned({{0, -1.15}}),
                        turned({{-0.3, -1}, {0.3, -1}, {0.3, -0.3}})};

double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

/// The range of a quantity in a chart, and the position of each value.
struct Axis {
  double min = 0, max = 1;
  bool log = false;
  double from = 0, to = 1;  // positions of min and max on the canvas

  double at(double value) const {
    const double part =
        log ? std::log(value / min) / std::log(max / min) : (value - min) / (max - min);
    return from + part * (to - from);
  }
  bool holds(double value) const { return value >= min && value <= max; }

  /// Returns at most `most` ticks.
  std::vector<double> ticks(double most) const {
    std::vector<double> out;
    if (log && max / min >= 10) {
      const int first = static_cast<int>(std::floor(std::log10(min))),
                last = static_cast<int>(std::ceil(std::log10(max)));
      const double decades = std::log10(max / min);
      const int every = std::max(1, static_cast<int>(std::ceil(decades / most)));
      for (int power = first; power <= last; ++power)
        for (const double mantissa : {1.0, 2.0, 5.0}) {
          const double value = mantissa * std::pow(10.0, power);
          const bool whole = mantissa == 1 && (power - first) % every == 0;
          if (holds(value) && (whole || 3 * decades <= most)) out.push_back(value);
        }
      return out;
    }
    double step = std::pow(10.0, std::floor(std::log10((max - min) / most)));
    for (const double factor : {2.0, 2.5, 2.0})  // 1, 2, 5, 10
      if ((max - min) / step > most) step *= factor;
    for (double i = std::ceil(min / step - 1e-9); i * step <= max + 1e-9 * step; ++i)
      out.push_back(i == 0 ? 0 : i * step);
    return out;
  }
};

/// Returns an axis that covers the values of x.
Axis x_axis(const Plot& plot) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Series& series : plot.series)
    for (const PlotPoint& point : series.points) {
      least = std::min(least, point.x);
      most = std::max(most, point.x);
    }
  Axis out{.log = plot.log_x};
  if (out.log) {
    out.min = least / 1.15;
    out.max = most * 1.15;
  } else if (least == most) {
    out.min = least - 1;
    out.max = most + 1;
  } else if (least >= 0 && least < 0.3 * most) {
    out.max = most * 1.02;
  } else {
    out.min = least - 0.06 * (most - least);
    out.max = most + 0.06 * (most - least);
  }
  return out;
}

/// Returns an axis that covers the values of y. It includes intervals unless they are far wider
/// than everything else. A few series far outside the others, such as those of diverged runs, are
/// left out so as not to flatten the rest; accuracies never are.
Axis y_axis(const Plot& plot, std::vector<std::string>& facts) {
  std::vector<const Series*> drawn;
  std::vector<double> firsts, lowest, highest, widths;
  for (const Series& series : plot.series) {
    std::vector<double> values;
    for (const PlotPoint& point : series.points) {
      if (!std::isfinite(point.y)) continue;
      values.push_back(point.y);
      if (const double width = point.high - point.low; std::isfinite(width))
        widths.push_back(width);
    }
    if (values.empty()) continue;
    drawn.push_back(&series);
    firsts.push_back(values[0]);
    lowest.push_back(std::ranges::min(values));
    highest.push_back(std::ranges::max(values));
  }
  Axis out{.log = plot.log_y};
  if (drawn.empty()) return out;
  double max = std::ranges::max(highest), min = std::ranges::min(lowest);
  // A loss starts near its maximum; other values are at most a few times the median of all.
  const double usual =
      plot.falls ? 1.25 * std::max(median(firsts), median(highest)) : 6 * median(highest);
  const bool may_leave = plot.falls || (!plot.log_y && plot.kind == Plot::Kind::lines);
  if (may_leave && !plot.unit_y && usual > 0 && max > 1.6 * usual) {
    max = usual;
    for (size_t i = 0; i < drawn.size(); ++i)
      if (highest[i] > usual)
        facts.push_back(
            fmt::format("{} leaves the chart (up to {:.3g}).", drawn[i]->label, highest[i]));
  }
  const double room = max > min ? max - min : std::max(std::abs(max), 1e-12);
  const double reach = plot.unit_y ? 1 : std::max(room, widths.empty() ? 0 : 1.5 * median(widths));
  const double top = plot.log_y ? 10 * max : max + reach,
               bottom = plot.log_y ? min / 10 : min - reach;
  for (const Series& series : plot.series)
    for (const PlotPoint& point : series.points) {
      if (point.high <= top) max = std::max(max, point.high);
      if (point.low >= bottom) min = std::min(min, point.low);
      for (const double value : point.seeds) {
        if (value <= top) max = std::max(max, value);
        if (value >= bottom) min = std::min(min, value);
      }
    }
  if (plot.log_y) {
    out.min = min / 1.25;
    out.max = max * 1.25;
    return out;
  }
  if (plot.kind == Plot::Kind::bars || (min >= 0 && min < 0.5 * max))
    min = std::min(min, 0.0);
  else
    min -= 0.06 * room;
  if (plot.kind == Plot::Kind::bars) max = std::max(max, 0.0);
  out.min = min;
  out.max = max + 0.04 * (max > min ? max - min : 1);
  if (plot.unit_y) {
    out.min = std::max(out.min, 0.0);
    out.max = std::min(out.max, 1.0);
    if (out.min >= out.max) out.min = out.max - 0.1;
  }
  return out;
}

// Viridis (van der Walt and Smith 2015), perceptually uniform, at eight points.
std::array<uint8_t, 3> viridis(double part) {
  constexpr double colours[][3] = {{68, 1, 84},    {70, 50, 127},  {54, 92, 141},  {39, 127, 142},
                                   {31, 161, 135}, {74, 194, 109}, {159, 218, 58}, {253, 231, 37}};
  constexpr size_t last = std::size(colours) - 1;
  const double place = std::clamp(part, 0.0, 1.0) * last;
  const auto i = std::min(static_cast<size_t>(place), last - 1);
  std::array<uint8_t, 3> out{};
  for (size_t k = 0; k < 3; ++k)
    out[k] = static_cast<uint8_t>(std::lround(
        colours[i][k] + (place - static_cast<double>(i)) * (colours[i + 1][k] - colours[i][k])));
  return out;
}
std::string hex(const std::array<uint8_t, 3>& rgb) {
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

class Drawing {
 public:
  Drawing(const Plot& plot, Canvas& canvas, std::vector<std::string>& facts)
      : plot_(plot), canvas_(canvas), facts_(facts), font_(canvas.format.font_size) {}

  std::string file() {
    using Kind = Plot::Kind;
    if (plot_.kind == Kind::lines) lines();
    if (plot_.kind == Kind::bars) bars();
    if (plot_.kind == Kind::heat) heat();
    if (plot_.kind == Kind::timeline) timeline();
    if (plot_.kind != Kind::heat) legend();
    return canvas_.finish(bottom_);
  }

 private:
  double width() const { return canvas_.format.width; }

  /// Returns the width to leave for text, which is wider for readers without Helvetica.
  double room_for(std::string_view text, double size = 1) const {
    return 1.18 * canvas_.width_of(text, size);
  }

  /// Breaks text into lines of at most this width; words only if they are 1.5 times as wide.
  std::vector<std::string> broken(const std::string& text, double most) const {
    std::vector<std::string> lines(1);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size());
      std::string word = text.substr(begin, end - begin);
      const bool too_wide = room_for(word) > 1.5 * most;
      while (too_wide && room_for(word) > most) {
        size_t fits = 0;
        for (size_t next = 1; next < word.size(); ++next)
          if ((word[next] & 0xc0) != 0x80) {  // not within a character
            if (fits > 0 && room_for(word.substr(0, next)) > most) break;
            fits = next;
          }
        if (fits == 0) break;
        if (!lines.back().empty()) lines.emplace_back();
        lines.back() = word.substr(0, fits);
        word.erase(0, fits);
      }
      if (lines.back().empty())
        lines.back() = word;
      else if (room_for(lines.back() + " " + word) <= most)
        lines.back() += " " + word;
      else
        lines.push_back(word);
      begin = end + 1;
    }
    return lines;
  }

  void stroke(std::vector<Line> lines, const std::string& colour, double thickness = 1,
              const std::vector<double>& dash = {}) {
    canvas_.lines(lines, {.stroke = colour, .width = thickness * font_ / 11, .dash = dash});
  }
  void fill(const Rect& r, const std::string& colour, double opacity = 1) {
    canvas_.lines({{{r.x, r.y},
                    {r.x + r.width, r.y},
                    {r.x + r.width, r.y + r.height},
                    {r.x, r.y + r.height}}},
                  {.fill = colour, .opacity = opacity}, true);
  }

  /// Writes a power of 10 where the axis has little else.
  void number(Point at, double value, const Axis& axis, double anchor) {
    const bool powers = axis.log && axis.max / axis.min >= 1000;
    const double power = std::log10(std::abs(value));
    const bool raised = powers && value > 0 && std::abs(power - std::round(power)) < 1e-9 &&
                        (power < -2.5 || power > 3.5);
    canvas_.text(at, raised ? "10" : tick_text(value),
                 {.colour = dim,
                  .anchor = anchor,
                  .raised = raised ? fmt::format("{:.0f}", power) : std::string()});
  }

  /// Draws the axis below an area, its title, and lines upwards from its ticks.
  void lower_axis(const Axis& axis, const std::string& title, double top, double bottom) {
    const double widest =
        std::max(room_for(tick_text(axis.max)), room_for(tick_text((axis.max - axis.min) / 8)));
    const double most =
        std::clamp(std::abs(axis.to - axis.from) / (widest + 1.6 * font_), 2.0, 8.0);
    std::vector<Line> upwards;
    for (const double value : axis.ticks(most)) {
      upwards.push_back({{axis.at(value), top}, {axis.at(value), bottom}});
      number({axis.at(value), bottom + 1.3 * font_}, value, axis, 0.5);
    }
    stroke(upwards, grid);
    stroke({{{axis.from, bottom}, {axis.to, bottom}}}, dim);
    bottom_ = bottom + 1.6 * font_;
    for (const std::string& line : broken(title, width() - 8)) {
      bottom_ += 1.2 * font_;
      const double half = room_for(line) / 2;
      const double centre = std::max(half, std::min((axis.from + axis.to) / 2, width() - half));
      canvas_.text({centre, bottom_}, line, {.colour = ink, .anchor = 0.5});
    }
    bottom_ += 0.5 * font_;
  }

  void mark(const Series& series, const std::vector<Point>& places) {
    const size_t shape = static_cast<size_t>(series.hue) % hues + series.variation;
    const double r = 0.34 * font_;
    std::vector<Line> all;
    for (const Point& at : places) {
      Line& moved = all.emplace_back();
      for (const auto& [x, y] : markers[shape % std::size(markers)])
        moved.push_back({at.x + x * r, at.y + y * r});
    }
    const std::string& colour = colour_of(series);
    canvas_.lines(all,
                  {.stroke = colour,
                   .fill = shape / std::size(markers) % 2 ? paper : colour,
                   .width = 0.14 * font_},
                  true);
  }

  double widest(const std::vector<std::string>& lines) const {
    double out = 0;
    for (const std::string& line : lines) out = std::max(out, room_for(line));
    return out;
  }

  /// Draws the legend: as many keys per line as fit side by side.
  void legend() {
    if (std::ranges::count(plot_.series, false, &Series::faint) < 2) return;
    const double sign = 2.2 * font_, gap = 1.4 * font_, line_height = 1.45 * font_;
    double x = 0, y = bottom_ + font_;
    for (size_t s = 0; s < plot_.series.size(); ++s) {
      const Series& series = plot_.series[s];
      if (series.faint) continue;
      const std::vector<std::string> lines = broken(series.label, width() - sign - 4);
      const double wide = widest(lines);
      if (x > 0 && x + sign + wide > width()) {
        x = 0;
        y += line_height;
      }
      canvas_.open(fmt::format("class=\"key\" data-s=\"{}\"", s), "");
      const double middle = y - 0.35 * font_;
      if (plot_.kind == Plot::Kind::timeline || has_bars())
        fill({x + 2, middle - 0.4 * font_, 1.6 * font_, 0.8 * font_}, colour_of(series));
      else {
        if (series.line)
          stroke({{{x + 2, middle}, {x + 1.8 * font_, middle}}}, colour_of(series), 1.7,
                 dash_of(series));
        if (series.hue >= 0) mark(series, {{x + 0.9 * font_ + 1, middle}});
      }
      for (size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) y += 1.2 * font_;
        canvas_.text({x + sign, y}, lines[i], {.colour = ink});
      }
      canvas_.close();
      x += sign + wide + gap;
      if (lines.size() > 1) x = width();
    }
    bottom_ = y + 0.6 * font_;
  }

  std::string described(const Series& series, const PlotPoint& point) const {
    std::string text =
        fmt::format("{}: {:.4g}", point.name.empty() ? series.label : point.name, point.y);
    if (std::isfinite(point.low) && std::isfinite(point.high))
      text += fmt::format(" ({:.4g} to {:.4g})", point.low, point.high);
    return has_bars() ? text : text + fmt::format(" at {} {:.4g}", plot_.x, point.x);
  }

  bool has_bars() const { return plot_.kind == Plot::Kind::bars; }
  /// Returns the position of a point along the y axis, which is below bars.
  Point placed(double along, double across) const {
    return has_bars() ? Point{along, across} : Point{across, along};
  }
  /// Draws a point's interval along one axis; if it leaves the chart, an arrow and a sentence.
  void whisker(const Series& series, const PlotPoint& point, const Axis& axis, double across) {
    if (!std::isfinite(point.low) || !std::isfinite(point.high) || point.low == point.high) return;
    const double low = std::max(point.low, axis.min), high = std::min(point.high, axis.max);
    const double cap = 0.28 * font_, head = 0.45 * font_;
    std::vector<Line> out = {{placed(axis.at(low), across), placed(axis.at(high), across)}};
    for (const auto& [value, end] : {std::pair{point.low, low}, {point.high, high}}) {
      const double along = axis.at(end);
      if (axis.holds(value)) {
        out.push_back({placed(along, across - cap), placed(along, across + cap)});
        continue;
      }
      const double back =
          along + std::copysign(head, (end == low ? 1 : -1) * (axis.to - axis.from));
      out.push_back(
          {placed(back, across - cap), placed(along, across), placed(back, across + cap)});
    }
    stroke(out, has_bars() ? ink : colour_of(series), 1.2);
    if (axis.holds(point.low) && axis.holds(point.high)) return;
    const std::string& name = point.name.empty() ? series.label : point.name;
    facts_.push_back(fmt::format("The interval{} leaves the axis: {:.3g} to {:.3g}.",
                                 name.empty() ? "" : " of " + name, point.low, point.high));
  }
  void seeds(const Series& series, const PlotPoint& point, const Axis& axis, double across) {
    std::vector<Line> dots;
    for (const double value : point.seeds)
      if (axis.holds(value)) dots.emplace_back(2, placed(axis.at(value), across));
    if (point.seeds.size() > 1)
      canvas_.lines(
          dots,
          {.stroke = has_bars() ? ink : colour_of(series), .width = 0.3 * font_, .opacity = 0.6});
  }

  void lines() {
    Axis x = x_axis(plot_), y = y_axis(plot_, facts_);
    const double top = 0.8 * font_, height = 0.58 * width();
    const std::vector<double> ticks = y.ticks(std::max(3.0, height / (2.6 * font_)));
    double widest = room_for("10") * 1.5;
    for (const double value : ticks) widest = std::max(widest, room_for(tick_text(value)));
    y.from = top + height;
    y.to = top;
    x.from = widest + 2.4 * font_;
    x.to = width() - 0.8 * font_;
    std::vector<Line> across;
    for (const double value : ticks) {
      across.push_back({{x.from, y.at(value)}, {x.to, y.at(value)}});
      number({x.from - 0.5 * font_, y.at(value) + 0.35 * font_}, value, y, 1);
    }
    stroke(across, grid);
    canvas_.text({font_, top + height / 2}, plot_.y,
                 {.colour = ink, .anchor = 0.5, .upright = true});
    lower_axis(x, plot_.x, top, y.from);
    const double margin = 0.4 * font_;  // half a marker
    canvas_.clip({x.from - margin, top - margin, x.to - x.from + 2 * margin, height + 2 * margin});
    for (size_t s = 0; s < plot_.series.size(); ++s) curve(s, x, y);
    canvas_.unclip();
  }

  void curve(size_t s, const Axis& x, const Axis& y) {
    const Series& series = plot_.series[s];
    std::vector<PlotPoint> points;
    for (const PlotPoint& point : series.points)
      if (std::isfinite(point.y) && (!y.log || point.y > 0)) points.push_back(point);
    const auto place = [&](double at, double value) {
      // Far outside looks the same as outside, and avoids long numbers.
      const double reach = 3 * std::abs(y.to - y.from);
      const double placed = y.log && value <= 0 ? y.from + reach : y.at(value);
      return Point{x.at(at), std::clamp(placed, y.to - reach, y.from + reach)};
    };
    const std::string& colour = colour_of(series);
    canvas_.open(fmt::format("data-s=\"{}\"", s), series.label);
    if (series.band) {
      Line area;
      for (const PlotPoint& point : points)
        area.push_back(place(point.x, std::isfinite(point.high) ? point.high : point.y));
      for (auto point = points.rbegin(); point != points.rend(); ++point)
        area.push_back(place(point->x, std::isfinite(point->low) ? point->low : point->y));
      if (points.size() > 1) canvas_.lines({area}, {.fill = colour, .opacity = 0.16}, true);
    }
    if (series.line && points.size() > 1) {
      Line line;
      for (const PlotPoint& point : points) line.push_back(place(point.x, point.y));
      stroke({line}, colour, series.faint ? 1 : 1.7, dash_of(series));
    }
    const size_t spread = plot_.markers > 0 ? plot_.markers : points.size() > 40 ? 8 : 0;
    const size_t every = spread > 0 ? (points.size() + spread - 1) / spread : 1;
    std::vector<Point> marks;
    for (size_t i = every / 2; i < points.size() && series.hue >= 0 && !series.faint; i += every) {
      const PlotPoint& point = points[i];
      if (spread == 0) canvas_.open("class=\"p\"", described(series, point));
      if (!series.band) whisker(series, point, y, x.at(point.x));
      seeds(series, point, y, x.at(point.x));
      if (spread == 0) {
        mark(series, {place(point.x, point.y)});
        canvas_.close();
      } else {
        marks.push_back(place(point.x, point.y));
      }
    }
    mark(series, marks);
    canvas_.close();
  }

  /// Returns names beside rows: each name's lines, and their width.
  std::pair<std::vector<std::vector<std::string>>, double> names(
      const std::vector<std::string>& all, double most) const {
    std::vector<std::vector<std::string>> lines;
    double wide = 0;
    for (const std::string& name : all) {
      lines.push_back(broken(name, most));
      wide = std::max(wide, widest(lines.back()));
    }
    return {lines, wide + 0.6 * font_};
  }
  void write_name(const std::vector<std::string>& lines, double right, double middle) {
    for (size_t i = 0; i < lines.size(); ++i)
      canvas_.text({right - 0.5 * font_,
                    middle + 0.35 * font_ +
                        1.1 * font_ *
                            (static_cast<double>(i) - 0.5 * static_cast<double>(lines.size() - 1))},
                   lines[i], {.colour = ink, .anchor = 1});
  }

  /// Draws a row per category, from the left, so that there is room for its name.
  void bars() {
    const auto [text, left] = names(plot_.categories, 0.42 * width());
    Axis axis = y_axis(plot_, facts_);
    axis.from = left;
    axis.to = width() - 1.2 * font_;
    const double count = static_cast<double>(plot_.series.size());
    double bottom = 0.3 * font_;
    std::vector<Rect> rows;
    for (const auto& lines : text) {
      rows.push_back({.y = bottom,
                      .height = font_ * std::max(1.55 + 0.8 * (count - 1),
                                                 1.15 * static_cast<double>(lines.size()) + 0.4)});
      bottom += rows.back().height;
    }
    lower_axis(axis, plot_.y, 0, bottom);
    for (size_t r = 0; r < rows.size(); ++r)
      write_name(text[r], axis.from, rows[r].y + rows[r].height / 2);
    const double zero = axis.at(axis.holds(0) ? 0 : axis.min);
    for (size_t s = 0; s < plot_.series.size(); ++s) {
      const Series& series = plot_.series[s];
      canvas_.open(fmt::format("data-s=\"{}\"", s), series.label);
      for (const PlotPoint& point : series.points) {
        const Rect& row = rows[static_cast<size_t>(point.x)];
        const double height = std::min((row.height - 0.35 * font_) / count, 1.2 * font_);
        const double y = row.y + row.height / 2 + (static_cast<double>(s) - count / 2) * height;
        canvas_.open("class=\"p\"", described(series, point));
        const double end = axis.at(std::clamp(point.y, axis.min, axis.max));
        fill({std::min(zero, end), y, std::abs(end - zero), height},
             colour_of(point.hue < 0 ? series.hue : point.hue), 0.55);
        whisker(series, point, axis, y + height / 2);
        seeds(series, point, axis, y + height / 2);
        canvas_.close();
      }
      canvas_.close();
    }
  }

  void timeline() {
    const auto [text, left] = names(plot_.categories, 0.35 * width());
    Axis axis{.max = 0, .from = left, .to = width() - 1.2 * font_};
    for (const TimelineSpan& span : plot_.spans) axis.max = std::max(axis.max, span.end);
    const double height = 1.9 * font_;
    lower_axis(axis, plot_.x, 0, height * static_cast<double>(text.size()));
    for (size_t lane = 0; lane < text.size(); ++lane)
      write_name(text[lane], axis.from, (static_cast<double>(lane) + 0.5) * height);
    for (size_t s = 0; s < plot_.series.size(); ++s) {
      canvas_.open(fmt::format("data-s=\"{}\"", s), plot_.series[s].label);
      for (const TimelineSpan& span : plot_.spans)
        if (span.series == s) {
          canvas_.open("class=\"p\"", fmt::format("{}: {:.4g} to {:.4g}", plot_.series[s].label,
                                                  span.begin, span.end));
          fill({axis.at(span.begin), static_cast<double>(span.lane) * height + 0.2 * font_,
                std::max(axis.at(span.end) - axis.at(span.begin), 0.3), height - 0.4 * font_},
               colour_of(plot_.series[s]));
          canvas_.close();
        }
      canvas_.close();
    }
  }

  void heat() {
    std::vector<double> values;
    for (const HeatMap& map : plot_.maps)
      for (const double value : map.values)
        if (std::isfinite(value)) values.push_back(value);
    if (values.empty()) return;
    std::ranges::sort(values);
    // The few largest weights may be far above all others: the scale ends at the top 0.5 %.
    const bool named = !plot_.maps[0].rows.empty();
    const double least = named ? values[0] : std::min(0.0, values[0]);
    double most = named
                      ? values.back()
                      : values[static_cast<size_t>(0.995 * static_cast<double>(values.size() - 1))];
    if (most <= least) most = values.back() > least ? values.back() : least + 1;
    // The best is yellow.
    const auto part = [&](double value) {
      return plot_.falls ? (most - value) / (most - least) : (value - least) / (most - least);
    };
    // Losses of several tasks have no common scale: each column has its own colours.
    const bool by_column = plot_.falls && plot_.maps[0].width > 1;
    if (named)
      squares(plot_.maps[0], part, by_column);
    else
      tiles(part);
    // The colour scale.
    const double left = 0.5 * font_, length = 0.35 * width();
    bottom_ += 0.9 * font_;
    std::string scale;
    for (int64_t i = 0; i < 64; ++i)
      for (const uint8_t byte : viridis(part(least + static_cast<double>(i) / 63 * (most - least))))
        scale += static_cast<char>(byte);
    const std::string first = by_column ? "best" : tick_text(least),
                      last = by_column
                                 ? "worst " + plot_.y + " of each task"
                                 : tick_text(most) + (most < values.back() ? " and more" : "") +
                                       "  " + plot_.y;
    const double begin = left + room_for(first) + font_;
    canvas_.text({left, bottom_ + 0.75 * font_}, first, {.colour = dim});
    canvas_.image({begin, bottom_, length, 0.8 * font_}, 64, 1, scale);
    canvas_.text({begin + length + 0.6 * font_, bottom_ + 0.75 * font_}, last, {.colour = dim});
    bottom_ += 1.4 * font_;
  }

  /// Draws squares with names and values.
  void squares(const HeatMap& map, const std::function<double(double)>& part, bool by_column) {
    const auto [text, left] = names(map.rows, 0.35 * width());
    const double cell = std::min((width() - left) / static_cast<double>(map.width), 8 * font_);
    auto columns = names(map.columns, 8 * font_);
    const bool upright = columns.second > cell;
    const auto fits = [&](const auto& head) {
      return 1.15 * font_ * static_cast<double>(head.size()) <= cell;
    };
    if (upright && !std::ranges::all_of(columns.first, fits))  // not over the next name
      columns = names(map.columns, INFINITY);
    const auto& [heads, widest] = columns;
    double lines = 1;
    for (const auto& head : heads) lines = std::max(lines, static_cast<double>(head.size()));
    double y = bottom_ + (upright ? widest : 1.15 * font_ * lines) + 0.5 * font_;
    for (size_t c = 0; c < heads.size(); ++c)
      for (size_t i = 0; i < heads[c].size(); ++i) {
        const double up = 1.15 * font_ * static_cast<double>(heads[c].size() - 1 - i);
        const double middle = left + (static_cast<double>(c) + 0.5) * cell;
        if (upright)
          canvas_.text({middle + 0.35 * font_ - up +
                            0.575 * font_ * static_cast<double>(heads[c].size() - 1),
                        y - 0.4 * font_},
                       heads[c][i], {.colour = ink, .upright = true});
        else
          canvas_.text({middle, y - 0.4 * font_ - up}, heads[c][i], {.colour = ink, .anchor = 0.5});
      }
    std::vector<std::pair<double, double>> ends(map.columns.size(), {INFINITY, -INFINITY});
    for (size_t i = 0; i < map.values.size(); ++i)
      if (auto& [best, worst] = ends[i % ends.size()]; std::isfinite(map.values[i])) {
        best = std::min(best, map.values[i]);
        worst = std::max(worst, map.values[i]);
      }
    for (size_t r = 0; r < map.rows.size(); ++r) {
      const double height = font_ * std::max(1.7, 1.15 * static_cast<double>(text[r].size()) + 0.3);
      write_name(text[r], left, y + height / 2);
      for (size_t c = 0; c < map.columns.size(); ++c) {
        const size_t at = r * static_cast<size_t>(map.width) + c;
        if (map.texts[at].empty()) continue;
        const bool scored = std::isfinite(map.values[at]);  // others are unfinished or failed
        const auto [best, worst] = ends[c];
        const double share = !scored        ? 0
                             : !by_column   ? part(map.values[at])
                             : worst > best ? (worst - map.values[at]) / (worst - best)
                                            : 1;
        const Rect place{left + static_cast<double>(c) * cell, y, cell - 1, height - 1};
        canvas_.open("class=\"p\"", map.rows[r] + ", " + map.columns[c] + ": " + map.texts[at]);
        if (scored) fill(place, hex(viridis(share)));
        const std::string shown = map.texts[at].substr(0, map.texts[at].find(' '));
        if (room_for(shown, 0.9) < cell - 2)
          canvas_.text({place.x + place.width / 2, y + height / 2 + 0.3 * font_}, shown,
                       {.colour = !scored        ? dim
                                  : share > 0.55 ? "#000000"
                                                 : "#ffffff",
                        .anchor = 0.5,
                        .size = 0.9});
        canvas_.close();
      }
      y += height;
    }
    bottom_ = y;
  }

  /// Draws images side by side.
  void tiles(const std::function<double(double)>& part) {
    const double count = std::min<double>(4, static_cast<double>(plot_.maps.size()));
    const double gap = font_, side = std::min((width() - gap * (count - 1)) / count, 0.6 * width());
    double x = 0, y = 1.3 * font_, lowest = y;
    for (const HeatMap& map : plot_.maps) {
      if (x > 0 && x + side > width() + 1) {
        x = 0;
        y = lowest + 2 * font_;
      }
      const double height = side * static_cast<double>(map.height) / static_cast<double>(map.width);
      canvas_.text({x, y - 0.4 * font_}, map.label, {.colour = dim, .size = 0.9});
      std::string pixels;
      for (const double value : map.values)
        for (const uint8_t byte :
             std::isfinite(value) ? viridis(part(value)) : std::array<uint8_t, 3>{225, 228, 232})
          pixels += static_cast<char>(byte);
      canvas_.image({x, y, side, height}, map.width, map.height, pixels);
      lowest = std::max(lowest, y + height);
      x += side + gap;
    }
    bottom_ = lowest;
  }

  const Plot& plot_;
  Canvas& canvas_;
  std::vector<std::string>& facts_;
  double font_;
  double bottom_ = 0;  // of what is drawn
};

}  // namespace

std::string draw(const Plot& plot, Canvas& canvas, std::vector<std::string>* facts) {
  std::vector<std::string> left;
  std::string file = Drawing(plot, canvas, left).file();
  constexpr size_t most = 6;
  if (left.size() > most) {
    left[most - 1] =
        fmt::format("{} more curves or intervals leave the chart.", left.size() - most + 1);
    left.resize(most);
  }
  if (facts) facts->insert(facts->end(), left.begin(), left.end());
  return file;
}

std::string style_of_charts() {
  std::string light, dark, changed;
  std::vector<std::pair<std::string, std::string>> names;  // of the colours that change
  for (size_t h = 0; h < palette.size(); ++h) {
    names.emplace_back(palette[h], fmt::format("h{}", h));
    light += fmt::format("--h{}:{};", h, palette[h]);
    dark += fmt::format("--h{}:{};", h, dark_palette[h]);
  }
  names.insert(names.end(), {{ink, "fg"}, {dim, "dim"}, {grid, "line"}});
  for (const auto& [colour, name] : names)
    changed += fmt::format("[fill=\"{0}\"]{{fill:var(--{1})}}[stroke=\"{0}\"]{{stroke:var(--{1})}}",
                           colour, name);
  return fmt::format(
      ":root{{{}}}@media screen and "
      "(prefers-color-scheme:dark){{:root{{{}}}{}path[fill=\"{}\"]{{fill:var(--card)}}}}",
      light, dark, changed, paper);
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  constexpr std::pair<double, const char*> units[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  for (const auto& [least, unit] : units)
    if (size >= least && size < 1e12)
      return fmt::format("{:.3g}{}", value / (least == 1e4 ? 1e3 : least), unit);
  std::string text = fmt::format("{:.4g}", value);
  if (const size_t e = text.find('e'); e != std::string::npos) {
    size_t zeros = e + 2;
    while (text[zeros] == '0') ++zeros;
    text.erase(e + 2, zeros - e - 2);
    if (text[e + 1] == '+') text.erase(e + 1, 1);
  }
  return text;
}

}  // namespace longhand::train
