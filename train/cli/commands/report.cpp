// longhand report: shows runs, sweeps and analyses in one HTML file, writes its charts as files, or
// prints tables, CSV or JSON.
#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/lab/report/board.h"
#include "longhand/train/lab/report/charts.h"
#include "longhand/train/lab/report/page.h"
#include "longhand/train/lab/report/paired.h"

namespace longhand::cli {
namespace {

struct ReportArguments : Common {  // out, if empty: report.html, or stdout
  std::vector<std::string> paths;
  std::string baseline;  // one of the sweeps
  bool csv = false;
  std::string figures;  // a folder; empty: none are written
  double width = 85;    // of figures, in mm
  double font_size = 8;
  bool serif = false;
};

train::ReportFormat format_of(const ReportArguments& arguments) {
  return arguments.csv    ? train::ReportFormat::csv
         : arguments.json ? train::ReportFormat::json
                          : train::ReportFormat::html;
}

/// Writes all charts to a folder.
int write_figures(const ReportArguments& arguments, const train::ReportInputs& inputs) {
  constexpr double points_per_mm = 72 / 25.4;
  check<ConfigError>(arguments.width >= 40 && arguments.width <= 1000, "--figure-width ",
                     arguments.width, ": expected 40 to 1000 mm");
  check<ConfigError>(arguments.font_size >= 4 && arguments.font_size <= 40, "--font-size ",
                     arguments.font_size, ": expected 4 to 40 points");
  const auto files = train::figure_files(
      inputs, {arguments.width * points_per_mm, arguments.font_size, arguments.serif});
  check<ConfigError>(!files.empty(), "--figures: these paths contain no charts");
  const fs::path folder = arguments.figures;
  for (const auto& file : files)
    for (const char* const suffix : {".svg", ".pdf"}) {
      const fs::path path = folder / (file.name + suffix);
      check<ConfigError>(train::may_replace(path, train::ReportFormat::figure), path.string(),
                         ": the file exists and is not a figure of Longhand; name another folder "
                         "with --figures");
    }
  fs::create_directories(folder);
  for (const auto& file : files) {
    data::write_file_durably(folder / (file.name + ".svg"), file.svg);
    data::write_file_durably(folder / (file.name + ".pdf"), file.pdf);
  }
  print_stdout_if_possible("{}: {} charts, each as SVG and PDF\n", fs::absolute(folder).string(),
                           files.size());
  return success;
}

/// Inserts comparisons of other sweeps with --baseline before the results; returns how many.
size_t add_comparisons(const ReportArguments& a, train::ReportInputs& inputs) {
  if (a.baseline.empty()) return 0;
  const fs::path path = a.baseline;
  const train::ReportedResults& baseline = results_of_sweep(inputs, path);
  std::vector<train::ReportedResults> comparisons;
  for (const train::ReportedResults& each : inputs.results)
    if (&each != &baseline && each.results.kind == baseline.results.kind) {
      comparisons.push_back({each.path, paired_results(each, baseline)});
      add_origin(comparisons.back().results, command_line());
    }
  check<ConfigError>(!comparisons.empty(), "--baseline ", a.baseline,
                     ": expected another sweep to compare with it");
  inputs.results.insert(inputs.results.begin(), comparisons.begin(), comparisons.end());
  return comparisons.size();
}

int report(const ReportArguments& arguments) {
  check<ConfigError>(
      arguments.style.columns.empty() || !arguments.table.empty(),
      "--columns applies only to the table of variants; expected --table md, csv, tex or text");
  const bool is_page = !arguments.csv && !arguments.json && arguments.table.empty();
  const std::string out =
      arguments.out.empty() && is_page && arguments.figures.empty() ? "report.html" : arguments.out;
  const train::ReportFormat format = format_of(arguments);
  check<ConfigError>(!arguments.out.empty() || train::may_replace(out, format), out,
                     ": the file exists and is not a report; name another file with -o, or "
                     "replace it with -o report.html --force");
  train::ReportInputs inputs = train::read_inputs({arguments.paths.begin(), arguments.paths.end()});
  const size_t comparisons = add_comparisons(arguments, inputs);
  if (!arguments.figures.empty()) return write_figures(arguments, inputs);
  if (is_page) {
    data::write_file_durably(out, train::html_report(inputs));
    print_stdout_if_possible("{}\n", fs::absolute(out).string());
    return success;
  }
  const char* const flag = arguments.csv ? "--csv" : arguments.json ? "--json" : "--table";
  check<ConfigError>(!inputs.runs.empty() || (comparisons > 0 && !arguments.csv), flag,
                     ": these paths contain no runs, only results of analyses");
  const train::Board board = train::compare(inputs);
  // Tables of comparisons, variants and runs, as results of an analysis.
  train::Results results{.title = "Runs",
                         .summary = fmt::format("{}", fmt::join(board.summary, " "))};
  for (size_t i = 0; i < comparisons; ++i)
    results.tables.push_back(inputs.results[i].results.tables.front());
  if (comparisons > 0) results.title = inputs.results.front().results.title;
  results.tables.insert(results.tables.end(), {board.leaderboard, board.runs});
  if (arguments.csv) {
    write_or_print(out, train::to_csv(board.runs));
  } else if (arguments.json) {
    write_or_print(out, json_of_results(results));
  } else {
    const train::Table& table = results.tables.front();
    write_or_print(out, printed_table(arguments, results, table,
                                      without_empty_columns(with_intervals(table))));
  }
  return success;
}

}  // namespace

void add_report(Command& program) {
  auto [c, a] = program.command<ReportArguments>("report", report);
  c.add("paths", a->paths).required();
  c.add("--baseline", a->baseline);
  c.out(a->out, [a = a](const auto& file) { return train::may_replace(file, format_of(*a)); });
  const Argument json = c.flag("--json", a->json);
  const Argument csv = c.flag("--csv", a->csv).excludes(json);
  const Argument table = c.common(*a, "table").excludes(json).excludes(csv);
  c.add("--figures", a->figures).excludes(json).excludes(csv).excludes(table);
  c.add("--figure-width", a->width);
  c.add("--font-size", a->font_size);
  c.flag("--serif", a->serif);
}

}  // namespace longhand::cli
