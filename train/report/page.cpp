#include "longhand/train/report/page.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "longhand/core/version.h"
#include "longhand/train/report/chart.h"
#include "longhand/train/report/reader.h"

namespace longhand::train {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

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

// Distinguishable by colour-blind readers: Okabe & Ito 2008, with black replaced.
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"};

}  // namespace

std::string html_report(const std::vector<std::filesystem::path>& paths) {
  const std::vector<RecordedRun> runs = read_runs(paths);

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
    const bool ended = runs[i].summary.has_value();
    const Summary s = runs[i].summary.value_or(Summary{});
    const auto of = [](const std::optional<Record>& record, double Record::*quantity) {
      return record ? (*record).*quantity : nan;
    };
    html += fmt::format(
        "<tr><td class=\"name\"><span class=\"dot d{}\"></span>{}</td>"
        "<td class=\"name\">{}</td><td class=\"name\">{}</td><td>{}</td>",
        i % 8, escape(runs[i].name), escape(s.attention), escape(s.task),
        escape(ended ? s.status : "running"));
    const auto count = [&](auto value) { return ended ? static_cast<double>(value) : nan; };
    html += cell(count(s.step), "{:.0f}") + cell(count(s.parameters), "{:.0f}") +
            cell(of(s.validation, &Record::loss)) + cell(of(s.validation, &Record::accuracy)) +
            cell(of(s.training, &Record::tokens_per_second), "{:.0f}") +
            cell(count(s.seconds), "{:.1f}") + cell(count(s.peak_memory) / (1 << 20), "{:.0f}") +
            "</tr>\n";
  }
  html +=
      "</table></div>\n<p class=\"note\">Loss and accuracy are from the last evaluation on the "
      "validation split, time and speed from the last process of a run.</p>\n"
      "<h2>Curves</h2><p class=\"note\">Thick: validation. Thin: training.</p><div "
      "class=\"charts\">\n";
  html += svg_chart("Loss", curves_of(runs, &Record::loss)) +
          svg_chart("Accuracy", curves_of(runs, &Record::accuracy));
  html += "</div>\n<h2>Configurations</h2>\n";
  for (const RecordedRun& run : runs)
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escape(run.name),
                        escape(run.config));
  html += fmt::format("<footer><p>Longhand {}</p></footer>\n</body></html>\n", version());
  return html;
}

}  // namespace longhand::train
