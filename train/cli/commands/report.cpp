// longhand report: shows runs, sweeps and analyses in one HTML file, or lists runs as CSV or JSON.
#include "longhand/data/file.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/lab/board.h"
#include "longhand/train/lab/page.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {  // out, if empty: report.html, or stdout
  std::vector<std::string> paths;
  bool csv = false;
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

int report(const Arguments& arguments) {
  const std::string out =
      arguments.out.empty() && !arguments.csv && !arguments.json ? "report.html" : arguments.out;
  const train::ReportFormat format = format_of(arguments);
  check<ConfigError>(!arguments.out.empty() || train::may_replace(out, format), out,
                     ": the file exists and is not a report; name another file with -o, or "
                     "replace it with -o report.html --force");
  const std::vector<fs::path> paths{arguments.paths.begin(), arguments.paths.end()};
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
  c.flag("--csv", a->csv).excludes(json);
}

}  // namespace longhand::cli
