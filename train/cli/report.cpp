// longhand report: shows runs, sweeps and analyses in one HTML file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/report/page.h"

namespace longhand::cli {
namespace {

struct Arguments {
  std::vector<std::string> paths;
  std::string out = "report.html";
};

int report(const Arguments& arguments) {
  check<ConfigError>(train::may_replace(arguments.out), "-o ", arguments.out,
                     ": the file exists and is no report; choose another name");
  const std::vector<std::filesystem::path> paths{arguments.paths.begin(), arguments.paths.end()};
  const std::string html = train::html_report(paths);
  data::write_file_durably(arguments.out, html);
  write_stdout_if_possible(std::filesystem::absolute(arguments.out).string() + "\n");
  return success;
}

}  // namespace

void add_report(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command("report", "Show runs, sweeps and analyses in one HTML file",
                              [a] { return report(*a); });
  c.add("paths", a->paths, "PATH",
        "Directories of runs, of sweeps, folders of runs, and JSON files of analyses")
      .required();
  c.add("-o,--out", a->out, "FILE.html", "File to write [report.html]; replaced if it is a report");
  c.footer(
      "The file needs no network. Runs and sweeps may still be in progress: repeat the command\n"
      "to update it. Results on the test split are shown for runs with a file test.json:\n"
      "longhand evaluate DIR --json > DIR/test.json");
}

}  // namespace longhand::cli
