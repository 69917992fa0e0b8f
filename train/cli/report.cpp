// longhand report: compares runs in one HTML file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <span>

#include "longhand/data/file.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/report/page.h"

namespace longhand::cli {
namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string out = "report.html";
};

int report(const Arguments& arguments) {
  const std::string html = train::html_report({arguments.runs.begin(), arguments.runs.end()});
  data::write_file_durably(arguments.out, std::as_bytes(std::span(html)));
  fmt::print("{}\n", std::filesystem::absolute(arguments.out).string());
  return success;
}

}  // namespace

void add_report(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command("report", "Compare runs in one self-contained HTML file",
                              [a] { return report(*a); });
  c.add("runs", a->runs, "DIR", "Run directories").required();
  c.add("-o,--out", a->out, "FILE.html", "File to write [report.html]");
}

}  // namespace longhand::cli
