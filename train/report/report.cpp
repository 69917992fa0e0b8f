#include "longhand/train/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "longhand/core/error.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Point {
  double x, y;
};

/// One curve of a chart.
struct Curve {
  std::vector<Point> points;
  size_t run = 0;         // which gives the colour
  bool training = false;  // drawn thin
};

struct Run {
  std::string name, config;
  Json summary;
  std::vector<Json> metrics;
};

std::string read_text(const fs::path& path) {
  const std::vector<std::byte> bytes = data::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  return out;
}

/// A number of a JSON object by its path of keys; NaN if it is missing or a text such as "NaN".
double number(const Json& object, std::initializer_list<const char*> keys) {
  const Json* at = &object;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return nan;
    at = &(*at)[key];
  }
  return at->is_number() ? at->get<double>() : nan;
}

std::string text(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

Run read_run(const fs::path& path) {
  check<ConfigError>(fs::exists(path / "metrics.jsonl"), path.string(),
                     " holds no run: there is no metrics.jsonl");
  Run run;
  run.name = path.lexically_normal().string();
  if (run.name.size() > 1 && run.name.back() == '/') run.name.pop_back();
  run.config = fs::exists(path / "config.toml") ? read_text(path / "config.toml") : "";
  if (fs::exists(path / "summary.json")) {
    run.summary = Json::parse(read_text(path / "summary.json"), nullptr, false);
    check<DataError>(run.summary.is_object(), (path / "summary.json").string(), ": no JSON object");
  }
  const std::string lines = read_text(path / "metrics.jsonl");
  int64_t count = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    // A run that is going on may have written half of its last line.
    if (end == std::string::npos) break;
    Json line = Json::parse(lines.begin() + static_cast<std::ptrdiff_t>(begin),
                            lines.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    ++count;
    check<DataError>(line.is_object(), (path / "metrics.jsonl").string(), ":", count,
                     ": no JSON object");
    run.metrics.push_back(std::move(line));
    begin = end + 1;
  }
  return run;
}

std::vector<Curve> curves_of(const std::vector<Run>& runs, const char* quantity) {
  std::vector<Curve> out;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const bool training : {true, false}) {
      Curve curve{{}, i, training};
      for (const Json& line : runs[i].metrics) {
        if (text(line, "split") != (training ? "train" : "validation")) continue;
        const Point p{number(line, {"step"}), number(line, {quantity})};
        if (std::isfinite(p.x) && std::isfinite(p.y)) curve.points.push_back(p);
      }
      if (!curve.points.empty()) out.push_back(std::move(curve));
    }
  return out;
}

/// Round numbers, about `count` of them, that span [low, high].
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

std::string chart(const std::string& title, const std::vector<Curve>& curves) {
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
    svg += fmt::format("<polyline class=\"c{} {}\" points=\"{}\"/>\n", c.run % 8,
                       c.training ? "thin" : "thick", points);
    if (!c.training)
      svg += fmt::format("<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n", c.run % 8,
                         sx(c.points.back().x), sy(c.points.back().y));
  }
  return svg + "</svg></figure>\n";
}

std::string cell(double value, const char* format = "{:.4f}") {
  return std::isfinite(value) ? fmt::format("<td>{}</td>", fmt::format(fmt::runtime(format), value))
                              : "<td>–</td>";
}

constexpr std::string_view style = R"css(
:root { color-scheme: light dark; --fg: #1c2024; --dim: #667; --line: #d8dbe0; --bg: #fff; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6e8eb; --dim: #99a; --line: #3a3f46; --bg: #16181b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); max-width: 1180px;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--dim); } td.name, th.name { text-align: left; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; } figure { flex: 1 1 420px; margin: 0; }
figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--dim); } .x { text-anchor: middle; } .y { text-anchor: end; }
.grid { stroke: var(--line); } polyline { fill: none; stroke-linejoin: round; }
.thin { stroke-width: 1; opacity: .45; } .thick { stroke-width: 2.2; }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .8rem; border-radius: 6px; }
p.note, footer { color: var(--dim); } .dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%;
  margin-right: .5em; }
)css";

// Distinguishable for colour-blind readers too: Okabe & Ito 2008, black replaced.
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"};

}  // namespace

std::string html_report(const std::vector<fs::path>& paths) {
  std::vector<Run> runs;
  for (const fs::path& path : paths) runs.push_back(read_run(path));

  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">"
      "<title>Longhand report</title><style>";
  html += style;
  for (size_t i = 0; i < std::size(colours); ++i)
    html += fmt::format(".c{0} {{ stroke: {1}; }} .d{0} {{ fill: {1}; background: {1}; }}\n", i,
                        colours[i]);
  html += "</style></head><body>\n<h1>Longhand report</h1>\n<div class=\"table\"><table>\n<tr>";
  for (const char* head : {"run", "attention", "task"})
    html += fmt::format("<th class=\"name\">{}</th>", head);
  for (const char* head : {"status", "steps", "parameters", "loss", "accuracy", "tokens/s",
                           "time (s)", "peak memory (MiB)"})
    html += fmt::format("<th>{}</th>", head);
  html += "</tr>\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    const Json& s = runs[i].summary;
    html += fmt::format(
        "<tr><td class=\"name\"><span class=\"dot d{}\"></span>{}</td>"
        "<td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td>",
        i % 8, escape(runs[i].name), escape(text(s, "attention")), escape(text(s, "task")),
        escape(s.is_object() ? text(s, "status") : "running"));
    html += cell(number(s, {"step"}), "{:.0f}") + cell(number(s, {"parameters"}), "{:.0f}") +
            cell(number(s, {"validation", "loss"})) + cell(number(s, {"validation", "accuracy"})) +
            cell(number(s, {"train", "tokens_per_second"}), "{:.0f}") +
            cell(number(s, {"seconds"}), "{:.1f}") +
            cell(number(s, {"peak_memory_bytes"}) / (1 << 20), "{:.0f}") + "</tr>\n";
  }
  html +=
      "</table></div>\n<p class=\"note\">Loss and accuracy are those of the last evaluation on the "
      "validation split; time and speed those of the last process of a run.</p>\n"
      "<h2>Curves</h2><p class=\"note\">Thick: validation. Thin: training.</p><div "
      "class=\"charts\">\n";
  html += chart("Loss", curves_of(runs, "loss")) + chart("Accuracy", curves_of(runs, "accuracy"));
  html += "</div>\n<h2>Configurations</h2>\n";
  for (const Run& run : runs)
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escape(run.name),
                        escape(run.config));
  html += fmt::format("<footer><p>Longhand {}</p></footer>\n</body></html>\n", version());
  return html;
}

}  // namespace longhand::train
