// course_figure DIRECTIVE <OUTPUT >FILE.svg: draws a table or matrices of a program's output. A directive
// of a page is a list, separated by semicolons:
//
//   lines m; x features; y relative error; log x; log y    the table whose first heading is "m": a line for
//                                                          each further column, over the first
//   heat exact weights; heat of features; y weight         the matrices below the lines "exact weights"
//                                                          and "of features", beside each other
//
// Columns are separated by two or more spaces. A cell that is not a number is left out.
#include <cmath>
#include <iostream>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "longhand/train/lab/report/plot.h"

using namespace longhand::train;

namespace {

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  const std::regex pattern(separator);
  std::vector<std::string> parts;
  for (std::sregex_token_iterator it(text.begin(), text.end(), pattern, -1), end; it != end; ++it)
    if (it->length()) parts.push_back(*it);
  return parts;
}

double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? value : std::nan("");
}

/// The cells of the lines below the one that `is_head` finds, down to the next empty line.
template <class F>
std::vector<std::vector<std::string>> below(const std::vector<std::string>& lines, F is_head) {
  std::vector<std::vector<std::string>> rows;
  auto at = std::find_if(lines.begin(), lines.end(), is_head);
  for (; at != lines.end() && *at != " "; ++at) rows.push_back(split(*at, " {2,}"));
  return rows;
}

void add_lines(Plot& plot, const std::vector<std::string>& output, const std::string& first) {
  const auto rows = below(output, [&](const std::string& line) {
    const auto cells = split(line, " {2,}");
    return cells.size() > 1 && cells[0] == first;
  });
  if (rows.size() < 3) throw std::runtime_error("no table with the first heading \"" + first + '"');
  for (size_t c = 1; c < rows[0].size(); ++c) {
    Series series{.label = rows[0][c], .hue = static_cast<int64_t>(c - 1)};
    for (size_t r = 1; r < rows.size(); ++r) {
      if (rows[r].size() <= c) continue;
      const double y = number(rows[r][c]), none = std::nan("");
      if (std::isfinite(y)) series.points.push_back({number(rows[r][0]), y, none, none});
    }
    plot.series.push_back(series);
  }
}

void add_map(Plot& plot, const std::vector<std::string>& output, const std::string& name) {
  auto rows = below(output, [&](const std::string& line) { return line == name; });
  if (rows.size() < 2) throw std::runtime_error("no matrix below a line \"" + name + '"');
  rows.erase(rows.begin());
  HeatMap map{.label = name,
              .width = static_cast<int64_t>(rows[0].size()),
              .height = static_cast<int64_t>(rows.size())};
  for (const auto& row : rows)
    for (const std::string& cell : row) map.values.push_back(number(cell));
  plot.kind = Plot::Kind::heat;
  plot.maps.push_back(map);
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) throw std::runtime_error("usage: course_figure DIRECTIVE <OUTPUT >FILE.svg");
  std::vector<std::string> output;
  for (std::string line; std::getline(std::cin, line);) output.push_back(line.empty() ? " " : line);
  Plot plot;
  for (const std::string& part : split(arguments[1], "; *")) {
    const size_t space = part.find(' ');
    const std::string key = part.substr(0, space), value = part.substr(space + 1);
    if (key == "lines")
      add_lines(plot, output, value);
    else if (key == "heat")
      add_map(plot, output, value);
    else if (key == "x" || key == "y")
      (key == "x" ? plot.x : plot.y) = value;
    else if (part == "log x" || part == "log y")
      (part == "log x" ? plot.log_x : plot.log_y) = true;
    else
      throw std::runtime_error("unknown part of a directive: " + part);
  }
  std::string svg = draw(plot, *svg_canvas({}));
  std::cout << svg.insert(svg.find("<svg ") + 5, "style=\"background:#fff\" ");
} catch (const std::exception& e) {
  std::cerr << "course_figure: " << e.what() << '\n';
  return 1;
}
