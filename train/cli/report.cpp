#include "longhand/train/report/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>

#include "longhand/data/file.h"
#include "longhand/train/cli/commands.h"

namespace longhand::cli {

int report(const ReportArguments& arguments) {
  const std::string html = train::html_report({arguments.runs.begin(), arguments.runs.end()});
  data::write_file_durably(arguments.out, std::as_bytes(std::span(html)));
  fmt::print("{}\n", std::filesystem::absolute(arguments.out).string());
  return success;
}

}  // namespace longhand::cli
