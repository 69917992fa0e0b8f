// The text of commands.
#include <algorithm>
#include <map>
#include <sstream>

#include "longhand/core/error.h"
#include "longhand/train/cli/help/page.h"

namespace longhand::cli {
namespace {

constexpr const char* commands_txt =
#include "longhand/train/cli/help/commands.txt"
    ;

std::map<std::string, CommandText> parse(const std::string& file) {
  std::map<std::string, CommandText> out;
  CommandText* section = nullptr;
  ArgumentText* argument = nullptr;
  bool in_paragraph = false;
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const bool kept = line.starts_with(' ');
    if (line.starts_with("# ")) {
      section = &out[line.substr(2)];
      std::getline(lines, section->line);
    } else if (section && line.starts_with("- ")) {
      const size_t colon = line.find(": ");
      const std::string head = line.substr(2, colon - 2);  // "--out DIR"
      const size_t end = std::min(head.find(' '), head.size());
      const std::string value = head.substr(std::min(end + 1, head.size()));
      section->arguments.push_back({head.substr(0, end), {value, line.substr(colon + 2)}});
      argument = &section->arguments.back().second;
      continue;
    } else if (argument && kept) {
      argument->text += line.substr(1);
      continue;
    } else if (section && !line.empty()) {
      std::string& text = section->footer;
      if (!text.empty()) text += in_paragraph && !kept ? " " : "\n";
      text += line.starts_with("> ") ? out.at(line.substr(2)).footer : line;
    }
    argument = nullptr;
    in_paragraph = !kept && !line.empty() && !line.starts_with("> ");
  }
  return out;
}

}  // namespace

const CommandText& text_of_command(const std::string& name) {
  static const std::map<std::string, CommandText> texts = parse(commands_txt);
  const auto found = texts.find(name);
  check(found != texts.end(), "help/commands.txt has no section ", name);
  return found->second;
}

const ArgumentText& text_of_argument(const std::string& command, const std::string& name) {
  for (const auto& [each, text] : text_of_command(command).arguments)
    if (each == name) return text;
  check(command != "common", "help/commands.txt does not describe ", name);
  const size_t space = command.rfind(' ');
  return text_of_argument(space == std::string::npos ? "common" : command.substr(0, space), name);
}

}  // namespace longhand::cli
