#include "longhand/train/cli/help/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/utf8.h"

namespace longhand::cli {
namespace {

constexpr size_t columns = 100;     // of the help
constexpr size_t left_column = 30;  // of them, for names

using Rows = std::vector<std::pair<std::string, std::string>>;

/// Names beside their texts.
std::string rows(const std::string& heading, const Rows& list) {
  std::string out = list.empty() ? "" : "\n" + heading + ":\n";
  const std::string margin(left_column, ' ');
  for (const auto& [name, text] : list) {
    const bool fits = name.size() + 2 < left_column;
    out += fmt::format("  {:<{}}{}", name, left_column - 2, fits ? "" : "\n" + margin);
    out += replaced(wrapped_lines(text, columns - left_column) + "\n", '\n', "\n" + margin);
    out.resize(out.size() - left_column);
  }
  return out;
}

std::string program_footer() {
  const auto list = [](const std::string& section, const char* format) {
    std::string out;
    for (const auto& [name, about] : text_of_command(section).arguments)
      out += (out.empty() ? section + ": " : "; ") +
             fmt::format(fmt::runtime(format), name, about.text);
    return out + ".";
  };
  return list("Exit codes", "{} {}") +
         " Output to a closed pipe is dropped; any other failure to write a result is an error.\n" +
         list("Environment", "{} ({})");
}

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

const ArgumentPage* CommandPage::flag(std::string_view flag_name) const {
  for (const ArgumentPage& each : arguments)
    if (!each.positional && std::ranges::find(each.names, flag_name) != each.names.end())
      return &each;
  return nullptr;
}

const CommandPage* CommandPage::command(std::string_view word) const {
  for (const CommandPage& each : commands)
    if (each.word() == word) return &each;
  return nullptr;
}

std::string shown_value(const ArgumentPage& argument) {
  const bool dots = argument.repeated && !argument.value.ends_with("...");
  return argument.value + (dots ? "..." : "");
}

std::string synopsis(const CommandPage& page) {
  std::string out = "[OPTIONS]";
  for (const bool positional : {true, false})
    for (const ArgumentPage& each : page.arguments) {
      if (each.positional != positional || (!positional && !each.required)) continue;
      const std::string text = (positional ? "" : each.name() + " ") + shown_value(each);
      out += each.required ? " " + text : " [" + text + "]";
    }
  return out + (page.commands.empty() ? "" : " COMMAND");
}

std::string help_text(const CommandPage& page) {
  Rows positionals, options, commands;
  for (const ArgumentPage& each : page.arguments) {
    std::string name = each.positional ? "" : fmt::format("{}", fmt::join(each.names, ", "));
    if (!each.value.empty()) name += (name.empty() ? "" : " ") + shown_value(each);
    (each.positional ? positionals : options)
        .emplace_back(name, each.text + (each.required ? " (required)" : ""));
  }
  for (const CommandPage& each : page.commands) commands.emplace_back(each.word(), each.text);
  return fmt::format("{}\nUsage: {} {}\n{}{}{}\n{}\n", page.text, page.name, synopsis(page),
                     rows("Positionals", positionals), rows("Options", options),
                     rows("Subcommands", commands),
                     wrapped_lines(page.footer.empty() ? program_footer() : page.footer, columns));
}

bool is_flag(std::string_view word) {
  const bool number = word.size() > 1 && (word[1] == '.' || ('0' <= word[1] && word[1] <= '9'));
  return word.size() > 1 && word[0] == '-' && !number;
}

}  // namespace longhand::cli
