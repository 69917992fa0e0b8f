#include "longhand/train/cli/output/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhand/core/utf8.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/cli/output/output.h"

namespace longhand::cli {

void add_out(Command& command, ResultsArguments& arguments) {
  command.out(arguments.out, "FILE.json",
              "Write the results for longhand report, and for reading back", [](const auto& file) {
                return begins_with(file, "{\n \"kind\": \"" + chosen_command() + "\",");
              });
}

train::Results new_results(std::string title, std::string summary) {
  train::Results out;
  out.kind = chosen_command();
  out.title = std::move(title);
  out.summary = std::move(summary);
  return out;
}

int finish(const ResultsArguments& arguments, train::Results results, const Shown& shown) {
  if (results.kind.empty()) results.kind = chosen_command();
  results.command = command_line();
  results.machine = train::machine_and_threads();
  results.date = train::utc_now();
  results.version = version();
  const std::string json = train::to_json(results);
  if (!arguments.out.empty()) data::write_file_durably(arguments.out, json);
  if (arguments.json) {
    print_stdout("{}", json);
    return success;
  }
  if (!shown.format.empty()) {
    const train::Table& table = results.tables.at(0);
    print_stdout("{}", to_format(shown.format, table, shown.readable(table)));
    return success;
  }
  for (const train::Table& table : results.tables) {
    if (std::find(shown.hidden.begin(), shown.hidden.end(), table.name) != shown.hidden.end())
      continue;
    print_stdout("{}\n", wrapped_lines(table.title, 100));
    if (!table.note.empty() && !arguments.quiet)
      print_stdout("{}\n", wrapped_lines(table.note, 100));
    print_stdout("\n{}\n", train::to_text(shown.readable(table)));
  }
  print_stdout("{}\n", wrapped_lines(results.summary, 100));
  if (!arguments.out.empty() && !arguments.quiet) print_stdout("written to {}\n", arguments.out);
  return success;
}

}  // namespace longhand::cli
