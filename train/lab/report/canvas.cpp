#include "longhand/train/lab/report/canvas.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/utf8.h"

namespace longhand::train {
namespace {

// Widths of the characters from ' ' to '~' in thousandths of the font size (Adobe's font metrics).
constexpr std::array<int16_t, 95> helvetica = {
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333,  278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667,  611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278,  556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,  500, 334, 260, 334, 584};
constexpr std::array<int16_t, 95> times = {
    250, 333, 408, 500, 500, 833, 778, 180, 333, 333, 500, 564, 250, 333, 250, 278, 500, 500, 500,
    500, 500, 500, 500, 500, 500, 500, 278, 278, 564, 564, 564, 444, 921, 722, 667, 667, 722, 611,
    556, 722, 722, 333, 389, 722, 611, 889, 722, 722, 556, 722, 667, 556, 611, 722, 722, 944, 722,
    722, 611, 333, 278, 333, 469, 500, 333, 444, 500, 444, 500, 444, 333, 500, 500, 278, 278, 500,
    278, 778, 500, 500, 500, 500, 333, 389, 278, 500, 500, 722, 500, 500, 444, 480, 200, 480, 541};

constexpr double raise = 0.4, raised_size = 0.75;  // for an exponent

/// Calls f with each character; a byte that is not UTF-8 counts as one.
template <class F>
void for_each_character(std::string_view text, F with) {
  while (!text.empty()) {
    const Utf8Character c = utf8_character(text);
    with(c.length == 0 ? uint32_t{'?'} : c.value);
    text.remove_prefix(std::max<size_t>(c.length, 1));
  }
}

/// Formats a length with at most two decimals.
std::string length(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

/// Formats several lengths, separated by spaces.
std::string lengths(const std::vector<double>& values) {
  std::string out;
  for (const double each : values) out.append(out.empty() ? "" : " ").append(length(each));
  return out;
}

// ----------------------------------------------------------------------------------------------
// SVG.

/// Returns four bytes.
std::string big_endian(uint64_t value) {
  std::string out;
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 255);
  return out;
}

std::string png(int64_t columns, int64_t rows, std::string_view rgb) {
  const auto chunk = [](const std::string& type, const std::string& data) {
    const std::string content = type + data;
    const uLong crc =
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    return big_endian(data.size()) + content + big_endian(crc);
  };
  std::string lines;
  const auto width = static_cast<size_t>(3 * columns);
  for (int64_t r = 0; r < rows; ++r) {
    lines += '\0';  // no filter
    lines += rgb.substr(static_cast<size_t>(r) * width, width);
  }
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big_endian(columns) + big_endian(rows) + std::string("\x08\x02\0\0\0", 5)) +
         chunk("IDAT", compressed(lines)) + chunk("IEND", "");
}

class SvgCanvas : public Canvas {
 public:
  using Canvas::Canvas;

  void lines(const std::vector<Line>& lines, const Pen& pen, bool closed) override {
    std::string d;
    for (const Line& line : lines) {
      for (size_t i = 0; i < line.size(); ++i) {
        const bool dot = i > 0 && line[i].x == line[i - 1].x && line[i].y == line[i - 1].y;
        d += dot ? "h0"
                 : fmt::format("{}{} {}", i == 0 ? "M" : "L", short_length(line[i].x),
                               short_length(line[i].y));
      }
      if (closed) d += 'z';
    }
    if (d.empty()) return;
    body_ += fmt::format("<path d=\"{}\" fill=\"{}\"", d, pen.fill.empty() ? "none" : pen.fill);
    if (!pen.stroke.empty())
      body_ += fmt::format(" stroke=\"{}\" stroke-width=\"{}\"", pen.stroke, length(pen.width));
    if (!pen.dash.empty()) body_ += fmt::format(" stroke-dasharray=\"{}\"", lengths(pen.dash));
    if (pen.opacity != 1) body_ += fmt::format(" opacity=\"{}\"", length(pen.opacity));
    body_ += "/>\n";
  }

  void text(Point at, std::string_view text, const TextStyle& style) override {
    const char* const anchors[] = {"start", "middle", "end"};
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\"", short_length(at.x),
                         short_length(at.y), style.colour);
    if (style.anchor > 0)
      body_ += fmt::format(" text-anchor=\"{}\"", anchors[std::lround(2 * style.anchor)]);
    if (style.size != 1)
      body_ += fmt::format(" font-size=\"{}\"", length(style.size * format.font_size));
    if (style.upright)
      body_ +=
          fmt::format(" transform=\"rotate(-90 {} {})\"", short_length(at.x), short_length(at.y));
    body_ += '>';
    body_ += escape_markup(printable(text));
    if (!style.raised.empty())
      body_ += fmt::format("<tspan dy=\"{}\" font-size=\"{}\">{}</tspan>",
                           length(-raise * style.size * format.font_size),
                           length(raised_size * style.size * format.font_size),
                           escape_markup(style.raised));
    body_ += "</text>\n";
  }

  void image(const Rect& place, int64_t columns, int64_t rows, std::string_view rgb) override {
    body_ += fmt::format(
        "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" "
        "style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>\n",
        length(place.x), length(place.y), length(place.width), length(place.height),
        base64(png(columns, rows, rgb)));
  }

  void clip(
      const Rect& shown) override {  // an inner image needs no name, which might be a duplicate
    body_ += fmt::format(
        "<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n",
        length(shown.x), length(shown.y), length(shown.width), length(shown.height));
  }
  void unclip() override { body_ += "</svg>\n"; }

  void open(std::string_view attributes, std::string_view title) override {
    body_ += fmt::format("<g{}{}>", attributes.empty() ? "" : " ", attributes);
    if (!title.empty()) body_ += fmt::format("<title>{}</title>", escape_markup(printable(title)));
    body_ += '\n';
  }
  void close() override { body_ += "</g>\n"; }

  std::string finish(double height) override {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" data-by=\"Longhand figure\" viewBox=\"0 0 {0} "
        "{1}\" width=\"{0}pt\" height=\"{1}pt\" font-family=\"{2}\" font-size=\"{3}\" "
        "stroke-linecap=\"round\" stroke-linejoin=\"round\">\n{4}</svg>\n",
        length(format.width), length(height),
        format.serif ? "Times,Times New Roman,Liberation Serif,serif"
                     : "Helvetica,Arial,Liberation Sans,sans-serif",
        length(format.font_size), body_);
  }

 private:
  /// A tenth of a point is below any printer's resolution, and curves have many points.
  static std::string short_length(double value) { return length(std::round(10 * value) / 10); }

  std::string body_;
};

// ----------------------------------------------------------------------------------------------
// PDF 1.4, with fonts that every reader has.

/// A character in the encoding WinAnsi or in the Symbol font's.
struct PdfCharacter {
  char code = '?';
  bool symbol = false;
};
PdfCharacter pdf_character(uint32_t c) {
  static const std::map<uint32_t, PdfCharacter> others = {
      {0x2013, {'\x96'}},       {0x2014, {'\x97'}},       {0x2018, {'\x91'}},
      {0x2019, {'\x92'}},       {0x201c, {'\x93'}},       {0x201d, {'\x94'}},
      {0x2022, {'\x95'}},       {0x2026, {'\x85'}},       {0x202f, {' '}},
      {0x2212, {'-', true}},    {0x2264, {'\xa3', true}}, {0x2265, {'\xb3', true}},
      {0x221e, {'\xa5', true}}, {0x221a, {'\xd6', true}}, {0x2192, {'\xae', true}}};
  // Order of the Greek letters from U+0391 (capital) and U+03B1 (small).
  constexpr std::string_view greek = "ABGDEZHQIKLMNXOPR?STUFCYW",
                             small = "abgdezhqiklmnxoprVstufcyw";
  if (c >= ' ' && (c < 127 || (c >= 0xa0 && c < 0x100))) return {static_cast<char>(c)};
  if (c >= 0x391 && c <= 0x3a9) return {greek[c - 0x391], true};
  if (c >= 0x3b1 && c <= 0x3c9) return {small[c - 0x3b1], true};
  const auto found = others.find(c);
  return found == others.end() ? PdfCharacter{} : found->second;
}

class PdfCanvas : public Canvas {
 public:
  using Canvas::Canvas;

  void lines(const std::vector<Line>& lines, const Pen& pen, bool closed) override {
    std::string path;
    for (const Line& line : lines) {
      for (size_t i = 0; i < line.size(); ++i)
        path += lengths({line[i].x, -line[i].y}) + (i == 0 ? " m " : " l ");
      if (closed) path += "h ";
    }
    if (path.empty()) return;
    content_ += fmt::format("q /A{} gs ", opacity(pen.opacity));
    if (!pen.fill.empty()) content_ += colour(pen.fill) + " rg ";
    if (!pen.stroke.empty())
      content_ += fmt::format("{} RG {} w [{}] 0 d ", colour(pen.stroke), length(pen.width),
                              lengths(pen.dash));
    content_ += path + (pen.fill.empty() ? "S" : pen.stroke.empty() ? "f" : "B") + " Q\n";
  }

  void text(Point at, std::string_view text, const TextStyle& style) override {
    const double size = style.size * format.font_size;
    const double back = style.anchor * (width_of(text, style.size) +
                                        width_of(style.raised, style.size * raised_size));
    if (style.upright)
      at.y += back;
    else
      at.x -= back;
    content_ += fmt::format("BT {} rg {} {} Tm ", colour(style.colour),
                            style.upright ? "0 1 -1 0" : "1 0 0 1", lengths({at.x, -at.y}));
    show(text, size);
    if (!style.raised.empty()) {
      content_ += fmt::format("{} Ts ", length(raise * size));
      show(style.raised, size * raised_size);
      content_ += "0 Ts ";
    }
    content_ += "ET\n";
  }

  void image(const Rect& place, int64_t columns, int64_t rows, std::string_view rgb) override {
    content_ +=
        fmt::format("q {} cm /I{} Do Q\n",
                    lengths({place.width, 0, 0, place.height, place.x, -place.y - place.height}),
                    images_.size());
    images_.push_back(stream(
        fmt::format("/Type /XObject /Subtype /Image /Width {} /Height {} /ColorSpace /DeviceRGB "
                    "/BitsPerComponent 8 ",
                    columns, rows),
        rgb));
  }

  void clip(const Rect& shown) override {
    content_ += fmt::format("q {} re W n\n",
                            lengths({shown.x, -shown.y - shown.height, shown.width, shown.height}));
  }
  void unclip() override { content_ += "Q\n"; }

  std::string finish(double height) override {
    std::string states, pictures;
    for (size_t i = 0; i < opacities_.size(); ++i)
      states +=
          fmt::format("/A{} << /ca {} /CA {} >> ", i, length(opacities_[i]), length(opacities_[i]));
    for (size_t i = 0; i < images_.size(); ++i) pictures += fmt::format("/I{} {} 0 R ", i, i + 7);
    const char* const font = format.serif ? "Times-Roman" : "Helvetica";
    std::vector<std::string> objects = {
        "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        fmt::format("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {} {}] /Contents 4 0 R /Resources "
                    "<< /Font << /F1 5 0 R /F2 6 0 R >> /ExtGState << {}>> /XObject << {}>> >> >>",
                    length(format.width), length(height), states, pictures),
        // Upwards from the lower edge of the page, with round line ends.
        stream("", fmt::format("1 0 0 1 0 {} cm 1 J 1 j\n{}", length(height), content_)),
        fmt::format("<< /Type /Font /Subtype /Type1 /BaseFont /{} /Encoding /WinAnsiEncoding >>",
                    font),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Symbol >>"};
    objects.insert(objects.end(), images_.begin(), images_.end());
    std::string out = "%PDF-1.4\n%\xe2\xe3\xcf\xd3\n%Longhand figure\n", table;
    for (size_t i = 0; i < objects.size(); ++i) {
      table += fmt::format("{:010} 00000 n \n", out.size());
      out += fmt::format("{} 0 obj\n{}\nendobj\n", i + 1, objects[i]);
    }
    const size_t at = out.size(), count = objects.size() + 1;
    return out + fmt::format(
                     "xref\n0 {}\n0000000000 65535 f \n{}trailer\n<< /Size {} /Root 1 0 R "
                     ">>\nstartxref\n{}\n%%EOF\n",
                     count, table, count, at);
  }

 private:
  static std::string stream(const std::string& entries, std::string_view data) {
    const std::string bytes = compressed(data);
    return fmt::format("<< {}/Length {} /Filter /FlateDecode >>\nstream\n{}\nendstream", entries,
                       bytes.size(), bytes);
  }

  static std::string colour(const std::string& hex) {
    const auto part = [&](size_t at) {
      return static_cast<double>(std::stoi(hex.substr(at, 2), nullptr, 16)) / 255;
    };
    return lengths({part(1), part(3), part(5)});
  }

  size_t opacity(double value) {
    const auto found = std::ranges::find(opacities_, value);
    if (found != opacities_.end()) return static_cast<size_t>(found - opacities_.begin());
    opacities_.push_back(value);
    return opacities_.size() - 1;
  }

  /// Shows text as runs of one font each.
  void show(std::string_view text, double size) {
    std::string run;
    bool symbol = false;
    const auto end_run = [&] {
      if (!run.empty())
        content_ += fmt::format("/F{} {} Tf ({}) Tj ", symbol ? 2 : 1, length(size), run);
      run.clear();
    };
    for_each_character(text, [&](uint32_t c) {
      const PdfCharacter shown = pdf_character(c);
      if (shown.symbol != symbol) end_run();
      symbol = shown.symbol;
      if (shown.code == '(' || shown.code == ')' || shown.code == '\\') run += '\\';
      run += shown.code;
    });
    end_run();
  }

  std::string content_;
  std::vector<double> opacities_ = {1};
  std::vector<std::string> images_;
};

}  // namespace

double Canvas::width_of(std::string_view text, double size) const {
  const auto& widths = format.serif ? times : helvetica;
  int64_t sum = 0;
  for_each_character(text, [&](uint32_t c) {
    sum += c >= ' ' && c <= '~' ? widths[c - ' '] : c == 0xb7 ? 278 : 556;
  });
  return static_cast<double>(sum) / 1000 * size * format.font_size;
}

std::unique_ptr<Canvas> svg_canvas(const FigureFormat& format) {
  return std::make_unique<SvgCanvas>(format);
}
std::unique_ptr<Canvas> pdf_canvas(const FigureFormat& format) {
  return std::make_unique<PdfCanvas>(format);
}

std::string escape_markup(std::string_view text) {
  constexpr std::pair<char, std::string_view> entities[] = {// first the one that starts all others
                                                            {'&', "&amp;"},
                                                            {'<', "&lt;"},
                                                            {'>', "&gt;"},
                                                            {'"', "&quot;"},
                                                            {'\'', "&#39;"}};
  std::string out(text);
  for (const auto& [c, entity] : entities) out = replaced(out, c, entity);
  return out;
}

std::string compressed(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  check<Error>(compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                         reinterpret_cast<const Bytef*>(bytes.data()),
                         static_cast<uLong>(bytes.size()), 9) == Z_OK,
               "zlib could not compress ", bytes.size(), " bytes: out of memory");
  out.resize(size);
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace longhand::train
