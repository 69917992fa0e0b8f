// Command: a subcommand as its file declares it. command.cpp alone knows CLI11.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace longhand::cli {

/// What the program's exit codes say.
enum ExitCode : int {
  success = 0,
  failure = 1,      // anything else
  usage_error = 2,  // the command line or the configuration
  data_error = 3,   // a data file or checkpoint is missing or cannot be used
  diverged = 4,     // loss or gradient was not finite
  stopped = 75,     // by a signal, and saved: train --resume goes on
};

/// What most subcommands take.
struct Common {
  std::vector<std::string> set;  // section.key=value
  std::optional<uint64_t> seed;
  bool quiet = false;
  bool json = false;
};

/// A flag or positional argument that was added to a command.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& required();
  /// A whole number of at least 1.
  Argument& positive();
  /// A number of at least 0.
  Argument& not_negative();
  /// One value each time it is given, which may be often.
  Argument& repeated();
  /// Values in one word, with commas between them.
  Argument& separated_by_commas();
  /// Not together with that one.
  Argument& excludes(const Argument& other);
  /// What an environment variable gives, if the command line does not.
  Argument& environment(const std::string& variable);

 private:
  CLI::Option* option_;
};

/// A subcommand, a group of them, or the whole program. Values are written where add() is told to
/// before the command runs: keep them in what the command's function owns.
class Command {
 public:
  struct Program;  // what was chosen, and what --threads says
  Command(CLI::App& app, Program& program) : app_(&app), program_(&program) {}

  /// A subcommand; `run` is what it does and returns the exit code. It throws errors, and main()
  /// turns them into a line and a code.
  Command command(const std::string& name, const std::string& text, std::function<int()> run);
  /// A name for several subcommands, of which one must be chosen.
  Command group(const std::string& name, const std::string& text);

  /// An argument: a flag such as "--limit" or "-o,--out", or a positional one such as "run".
  /// `value` is what the help calls its value. T is std::string, int64_t, double, std::optional of
  /// int64_t, uint64_t or double, or a std::vector of std::string or int64_t.
  template <class T>
  Argument add(const std::string& name, T& to, const std::string& value, const std::string& text);
  /// A flag without a value.
  Argument flag(const std::string& name, bool& to, const std::string& text);
  /// A text below the help.
  void footer(const std::string& text);

  /// --set, and the words behind the first positional argument, which count as assignments too, so
  /// that `--set a.b=1 c.d=2` is understood. Call words_to_set() after adding the positional ones.
  void set(Common& common, const std::string& value = "SECTION.KEY=VALUE",
           const std::string& text =
               "Set an option over the file, such as attention.type=performer; may be repeated");
  void words_to_set(Common& common);
  /// --seed
  Argument seed(Common& common);
  /// --threads
  void threads();
  /// -q, --quiet
  void quiet(Common& common);
  /// --json
  void json(bool& to);

 private:
  CLI::App* app_;
  Program* program_;
};

#define COMMAND(name) void add_##name(Command& program);
#include "longhand/train/cli/commands.def"
#undef COMMAND

/// The program with all its subcommands: parses the command line, runs what it chooses and returns
/// the exit code. Throws what the command throws.
int run_program(int argc, char** argv);

/// One line on stderr, whatever the message.
int fail(const std::string& message, int code);

/// `longhand --version`
int print_version(bool json);

}  // namespace longhand::cli
