#include "longhand/train/cli/output/answer.h"

#include <algorithm>

#include "longhand/core/options.h"
#include "longhand/core/utf8.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/cli/output/output.h"

namespace longhand::cli {
namespace {

std::string shown(const Json& value, const std::string& spec) {
  if (spec == ",") return with_commas(value.get<int64_t>());
  if (spec == "MiB") return std::to_string(value.get<int64_t>() >> 20);
  const std::string format = "{:" + spec + "}";
  const auto as = [&](const auto& x) { return fmt::vformat(format, fmt::make_format_args(x)); };
  if (value.is_number_integer()) return as(value.get<int64_t>());
  const bool is_number = value.is_number() || spec.ends_with('f') || spec.ends_with('g');
  if (const auto number = train::number_in(value); is_number && number) return as(*number);
  return as(value.get<std::string>());
}

/// Replaces the braces in a format by fields of an object, or by a value that is not an object.
std::string filled_in(std::string_view format, const Json& value) {
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const size_t begin = std::min(format.find('{', at), format.size());
    out.append(format.substr(at, begin - at));
    if (begin == format.size()) break;
    const size_t end = format.find('}', begin), colon = std::min(format.find(':', begin), end);
    const std::string name(format.substr(begin + 1, colon - begin - 1));
    const std::string spec(colon < end ? format.substr(colon + 1, end - colon - 1) : "");
    out += shown(name.empty() ? value : value.at(name), spec);
    at = end + 1;
  }
  return out;
}

}  // namespace

Answer& Answer::text(std::string_view format, const Json& fields) {
  return json_ ? *this : literal(filled_in(format, fields));
}

Answer& Answer::literal(std::string_view text) {
  if (!json_) print_stdout("{}", text);
  return *this;
}

Answer& Answer::each(const std::string& list, std::string_view format) {
  if (fields_.contains(list))
    for (const Json& value : fields_.at(list)) text(format, value);
  return *this;
}

Answer& Answer::table(const train::Table& table) { return literal(train::to_text(table)); }

int Answer::end(int code) const {
  if (json_) print_json(fields_);
  return code;
}

void print_json(const Json& result) {
  Json json = {{"kind", chosen_command()},
               {"command", command_line()},
               {"machine", train::machine_and_threads()},
               {"date", train::utc_now()},
               {"version", version()}};
  json.update(result);
  // Control characters other than those that JSON itself escapes occur only in strings.
  std::string out;
  const std::string text = train::dump(json, 2);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto next = static_cast<uint8_t>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0x7f) {
      out += "\\u007f";
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      out += fmt::format("\\u00{:02x}", next);
      ++i;
    } else {
      out += text[i];
    }
  }
  print_stdout("{}\n", out);
}

std::string json_of_results(train::Results& results) {
  if (results.kind.empty()) results.kind = chosen_command();
  add_origin(results, command_line());
  return train::to_json(results);
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
  if (style.label.empty())
    style.label = "tab:" + slug(results.title.empty() ? table.title : results.title);
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
