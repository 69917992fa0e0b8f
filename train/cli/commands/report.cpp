// longhand report: shows runs, sweeps and analyses in one HTML file, writes its charts as files, or lists runs as
// CSV or JSON.
#include "longhand/data/file.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/lab/board.h"
#include "longhand/train/lab/charts.h"
#include "longhand/train/lab/page.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {  // out, if empty: report.html, or stdout
  std::vector<std::string> paths;
  bool csv = false;
  std::string figures;  // a folder; empty: none are written
  double width = 85;    // of figures, in mm
  double font_size = 8;
  bool serif = false;
};

/// The tables of runs and of their variants, as results of an analysis.
std::string json_of(const train::Board& board) {
  train::Results results{.title = "Runs",
                         .summary = fmt::format("{}", fmt::join(board.summary, " ")),
                         .tables = {board.leaderboard, board.runs}};
  return json_of_results(results);
}

train::ReportFormat format_of(const Arguments& arguments) {
  return arguments.csv    ? train::ReportFormat::csv
         : arguments.json ? train::ReportFormat::json
                          : train::ReportFormat::html;
}

/// Writes all charts to a folder.
int write_figures(const Arguments& arguments, const std::vector<fs::path>& paths) {
  constexpr double points_per_mm = 72 / 25.4;
  check<ConfigError>(arguments.width >= 40 && arguments.width <= 1000, "--figure-width ",
                     arguments.width, ": expected 40 to 1000 mm");
  check<ConfigError>(arguments.font_size >= 4 && arguments.font_size <= 40, "--font-size ",
                     arguments.font_size, ": expected 4 to 40 points");
  const auto files =
      train::figure_files(train::read_inputs(paths),
                          {arguments.width * points_per_mm, arguments.font_size, arguments.serif});
  check<ConfigError>(!files.empty(), "--figures: there is no chart in these paths");
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

int report(const Arguments& arguments) {
  const std::vector<fs::path> paths{arguments.paths.begin(), arguments.paths.end()};
  if (!arguments.figures.empty()) return write_figures(arguments, paths);
  const std::string out =
      arguments.out.empty() && !arguments.csv && !arguments.json ? "report.html" : arguments.out;
  const train::ReportFormat format = format_of(arguments);
  check<ConfigError>(!arguments.out.empty() || train::may_replace(out, format), out,
                     ": the file exists and is not a report; name another file with -o, or "
                     "replace it with -o report.html --force");
  if (arguments.csv || arguments.json) {
    const train::ReportInputs inputs = train::read_inputs(paths);
    check<ConfigError>(!inputs.runs.empty(), arguments.csv ? "--csv" : "--json",
                       ": there is no run in these paths, only results of analyses");
    const train::Board board = train::compare(inputs);
    const std::string text = arguments.csv ? train::to_csv(board.runs) : json_of(board);
    write_or_print(out, text);
    return success;
  }
  data::write_file_durably(out, train::html_report(paths));
  print_stdout_if_possible("{}\n", fs::absolute(out).string());
  return success;
}

}  // namespace

void add_report(Command& program) {
  auto [c, a] = program.command<Arguments>("report", report);
  c.add("paths", a->paths).required();
  c.out(a->out, [a = a](const auto& file) { return train::may_replace(file, format_of(*a)); });
  const Argument json = c.flag("--json", a->json);
  const Argument csv = c.flag("--csv", a->csv).excludes(json);
  c.add("--figures", a->figures).excludes(json).excludes(csv);
  c.add("--figure-width", a->width);
  c.add("--font-size", a->font_size);
  c.flag("--serif", a->serif);
}

}  // namespace longhand::cli
