// Canvas: a surface for charts, as SVG or PDF. Lengths are in points, from the upper left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace longhand::train {

struct Point {
  double x = 0, y = 0;
};
using Line = std::vector<Point>;
struct Rect {
  double x = 0, y = 0, width = 0, height = 0;
};

/// How lines and areas are painted. Colours are "#rrggbb"; empty: not painted.
struct Pen {
  std::string stroke{}, fill{};
  double width = 1;
  std::vector<double> dash{};
  double opacity = 1;
};

struct TextStyle {
  std::string colour;
  double anchor = 0;     // of the point within the text: 0 start, 0.5 middle, 1 end
  double size = 1;       // relative to the canvas's font size
  bool upright = false;  // rotated to read upwards
  std::string raised{};  // exponent after the text
};

/// Size and font of figures.
struct FigureFormat {
  double width = 390;  // the height follows from the contents
  double font_size = 11;
  bool serif = false;
};

class Canvas {
 public:
  explicit Canvas(const FigureFormat& figure) : format(figure) {}
  virtual ~Canvas() = default;
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  /// Draws lines, or polygons if closed. A line of two equal points is a dot as wide as the pen.
  virtual void lines(const std::vector<Line>& lines, const Pen& pen, bool closed = false) = 0;
  /// `at` is on the baseline.
  virtual void text(Point at, std::string_view text, const TextStyle& style) = 0;
  /// Rows of pixels, 3 bytes each, without smoothing.
  virtual void image(const Rect& place, int64_t columns, int64_t rows, std::string_view rgb) = 0;
  /// Clips to a rectangle until unclip().
  virtual void clip(const Rect& shown) = 0;
  virtual void unclip() = 0;
  /// Groups everything until close(), with attributes, such as a class for the style sheet, and a
  /// title, shown when a reader of the page points at it. A PDF has neither.
  virtual void open(std::string_view, std::string_view) {}
  virtual void close() {}
  /// Returns the file, with this height.
  virtual std::string finish(double height) = 0;

  /// Returns the width of text in Helvetica or Times.
  double width_of(std::string_view text, double size = 1) const;

  const FigureFormat format;
};

std::unique_ptr<Canvas> svg_canvas(const FigureFormat& format);
std::unique_ptr<Canvas> pdf_canvas(const FigureFormat& format);

/// Escapes the characters with a meaning in HTML or SVG.
std::string escape_markup(std::string_view text);
/// Compresses bytes with zlib (RFC 1950). Throws Error if memory is short.
std::string compressed(std::string_view bytes);
/// Encodes as base64 (RFC 4648), with padding.
std::string base64(std::string_view bytes);

}  // namespace longhand::train
