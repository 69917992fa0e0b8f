#include "longhand/train/cli/output/results.h"

#include <algorithm>
#include <cctype>

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

void check_table(const Common& arguments) {
  const auto& [columns, caption, label] = arguments.style;
  if (!arguments.table.empty()) train::check_format(arguments.table);
  check<ConfigError>(arguments.table == "tex" || (caption.empty() && label.empty()),
                     "--caption and --label are of a LaTeX table; expected --table tex");
  check<ConfigError>(label.find_first_of("{}%#\\") == std::string::npos, "--label ", label,
                     ": expected a name without {, }, %, # and \\");
}

std::string printed_table(const Common& arguments, const train::Results& results,
                          const train::Table& table, const train::Table& readable) {
  train::TableStyle style = arguments.style;
  if (style.caption.empty()) {
    style.caption = results.title;
    if (!table.title.empty() && table.title != results.title)
      style.caption += (results.title.empty() ? "" : ". ") + table.title;
    if (!style.caption.empty()) style.caption += ".";
  }
  if (style.label.empty()) {
    style.label = "tab:";
    for (const char c : results.title.empty() ? table.title : results.title)
      if (std::isalnum(static_cast<unsigned char>(c)))
        style.label += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      else if (!style.label.ends_with('-') && !style.label.ends_with(':'))
        style.label += '-';
    if (style.label.ends_with('-')) style.label.pop_back();
  }
  return to_format(arguments.table.empty() ? "text" : arguments.table, table, readable, style);
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
    write_or_print("", printed_table(arguments, results, table, shown.readable(table)));
    return success;
  }
  for (const train::Table& table : results.tables) {
    if (std::ranges::find(shown.hidden, table.name) != shown.hidden.end()) continue;
    print_stdout("{}\n", wrapped_lines(table.title, 100));
    if (!table.note.empty() && !arguments.quiet)
      print_stdout("{}\n", wrapped_lines(table.note, 100));
    const bool first = &table == &results.tables.front();
    print_stdout("\n{}\n", first ? printed_table(arguments, results, table, shown.readable(table))
                                 : to_text(shown.readable(table)));
  }
  print_stdout("{}\n", wrapped_lines(results.summary, 100));
  if (!arguments.out.empty() && !arguments.quiet) print_stdout("written to {}\n", arguments.out);
  return success;
}

}  // namespace longhand::cli
