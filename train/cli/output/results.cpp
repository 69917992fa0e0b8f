#include "longhand/train/cli/output/results.h"

#include <algorithm>

#include "longhand/core/utf8.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/cli/output/output.h"

namespace longhand::cli {

std::string json_of_results(train::Results& results) {
  if (results.kind.empty()) results.kind = chosen_command();
  add_origin(results, command_line());
  return train::to_json(results);
}

int finish(const Common& arguments, train::Results results, const Shown& shown) {
  const std::string json = json_of_results(results);
  if (!arguments.out.empty()) data::write_file_durably(arguments.out, json);
  if (arguments.json) {
    print_stdout("{}", json);
    return success;
  }
  if (!arguments.table.empty()) {
    const train::Table& table = results.tables.at(0);
    print_stdout("{}", to_format(arguments.table, table, shown.readable(table)));
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
