// The text of commands.
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
  bool in_paragraph = false;
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const bool kept = line.starts_with(' ');
    if (line.starts_with("# ")) {
      section = &out[line.substr(2)];
      std::getline(lines, section->line);
    } else if (section && !line.empty()) {
      std::string& text = section->footer;
      if (!text.empty()) text += in_paragraph && !kept ? " " : "\n";
      text += line.starts_with("> ") ? out.at(line.substr(2)).footer : line;
    }
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

}  // namespace longhand::cli
