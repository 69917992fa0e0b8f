// The command line as plain data: what help, manual pages, completion and errors know about it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhand::cli {

/// A flag or a positional argument.
struct ArgumentPage {
  std::vector<std::string> names;  // "-o", "--out"; of a positional argument its name: "config"
  std::string value;               // the name of its value, "FILE.json"; empty: takes none
  std::string text;                // one paragraph
  bool positional = false, required = false, repeated = false;

  /// The longest name.
  const std::string& name() const { return names.back(); }
};

/// A command with its subcommands.
struct CommandPage {
  std::string name;    // "longhand bench step"
  std::string text;    // one line
  std::string footer;  // lines of any length
  std::vector<ArgumentPage> arguments;
  std::vector<CommandPage> commands;

  /// The last word of the name.
  std::string word() const { return name.substr(name.find_last_of(' ') + 1); }
  /// The flag or subcommand of this name, or null.
  const ArgumentPage* flag(std::string_view flag_name) const;
  const CommandPage* command(std::string_view word) const;
};

/// What commands.txt says about an argument, and about a command.
struct ArgumentText {
  std::string value;  // its name; empty: a flag without a value
  std::string text;
};
struct CommandText {
  std::string line, footer;
  std::vector<std::pair<std::string, ArgumentText>> arguments;
};
/// Commands are named without the program: "bench step"; "Exit codes" and "Environment" are sections, too.
const CommandText& text_of_command(const std::string& name);
const ArgumentText& text_of_argument(const std::string& command, const std::string& name);

/// What follows the name of a command: "[OPTIONS] TASK -o FILE.h5".
std::string synopsis(const CommandPage& page);

/// A value as it is written after its flag: "NAME...".
std::string shown_value(const ArgumentPage& argument);

/// What --help prints, in 100 columns.
std::string help_text(const CommandPage& page);

/// Whether a word of a command line is a flag, not a value such as -1.
bool is_flag(std::string_view word);

/// What may stand in place of the last of `words`, which follow "longhand" on a command line, with an
/// explanation. A word that begins with ':' stands for names of files: ":files" or ":directories".
std::vector<std::pair<std::string, std::string>> completions(const CommandPage& program,
                                                             const std::vector<std::string>& words);

/// Names the first word of a command line that is no flag or command where it stands, with what may be
/// meant; empty if there is none.
std::string wrong_word(const CommandPage& program, const std::vector<std::string>& words);

}  // namespace longhand::cli
