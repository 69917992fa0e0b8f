// Command: a subcommand as declared by its file. Only command.cpp uses CLI11.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/train/cli/help/page.h"
#include "longhand/train/results/table.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace longhand::cli {

/// Exit codes of the program.
enum ExitCode : int {
  success = 0,
  failure = 1,      // any other error
  usage_error = 2,  // invalid command line or configuration
  data_error = 3,   // a data file or checkpoint is missing or invalid
  diverged = 4,     // a loss, a gradient or a weight is not finite, or an outlier
  stopped = 75,     // saved after a signal: train --resume continues
};

/// Arguments that subcommands share, added by Command::common(). A command's own derive from it.
struct Common {
  std::string run, checkpoint = "best", split = "test";
  std::vector<std::string> set;  // section.key=value
  std::optional<uint64_t> seed;
  std::string out;          // a file to write
  std::string table;        // a format of to_format(): prints only a table
  train::TableStyle style;  // of the table
  bool quiet = false;
  bool json = false;
  bool trust_paths = false;  // see train::SavedModel::check_paths()
  bool accept_data = false;
};

struct ProgramState;  // all commands, and their common flags

/// A flag or positional argument of a command.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& required();
  /// Requires an integer from 1 to 2^bits, or several of them.
  Argument& positive(int bits = 30);
  /// Requires a number of at least 0.
  Argument& not_negative();
  /// May be given several times, with one value each time.
  Argument& repeated();
  /// Takes values from a single word, so that a positional argument may follow.
  Argument& one_word();
  /// Cannot be combined with `other`.
  Argument& excludes(const Argument& other);
  /// Appends to its help text.
  Argument& also(const std::string& text);

 private:
  CLI::Option* option_;
};

/// A subcommand or the whole program. Values are written to the references passed to add() before
/// the command runs: keep them in an object that the command's function owns.
class Command {
 public:
  Command(CLI::App& app, ProgramState& state) : app_(&app), state_(&state) {}

  /// Adds a subcommand such as "train" or "bench step"; its first one also adds the group "bench".
  /// help/commands.txt has the texts. run(arguments) executes it and returns the exit code. main()
  /// converts the errors it throws to a message and an exit code.
  template <class Arguments, class F>
  std::pair<Command, std::shared_ptr<Arguments>> command(const std::string& name, F run) {
    const auto arguments = std::make_shared<Arguments>();
    return {add_command(name, [arguments, run] { return run(*arguments); }), arguments};
  }

  /// Adds an argument: a flag such as "--limit" or "-o,--out", or a positional one such as "run".
  /// help/commands.txt has its text and the name of its value. T is std::string, int64_t, double,
  /// std::optional of int64_t, uint64_t or double, or std::vector of std::string, int64_t or
  /// double. Values are separated by commas if the name of the value ends with ",...".
  template <class T>
  Argument add(const std::string& name, T& to);
  /// Adds a flag without a value.
  Argument flag(const std::string& name, bool& to);
  /// Adds -o, --out, for an output file, and --force. Before doing anything, the command refuses an
  /// existing file unless `is_own` says that this command wrote it (null: never, since the file may
  /// have been edited); --force replaces any file.
  Argument out(std::string& to, std::function<bool(const std::filesystem::path&)> is_own);
  /// Makes the command respond to train::SignalRequests. Signals end other commands as usual.
  void responds_to_signals();
  /// Lets longhand-mpi run the command on several processes; it refuses all other commands.
  void runs_on_ranks();

  /// Adds the arguments of Common with these names, in this order, and returns the last one:
  ///
  ///     run          the directory of a run, required
  ///     checkpoint   --checkpoint, of a run
  ///     split        --split
  ///     set          --set
  ///    words        words after the positional arguments, which count as assignments too, so that
  ///                  `--set a.b=1 c.d=2` works: list it after the positional ones
  ///     seed, threads, quiet, json
  ///     trust_paths  for commands that read data named by a checkpoint
  ///     accept_data  for commands that compare data with hashes in a checkpoint
  ///     results      -o, for a command that returns Results
  ///     table        --table, and its options
  ///
  /// With --json, a command prints one object; see output/answer.h.
  Argument common(Common& common, const std::string& names);

  /// Returns the command and its subcommands as shown in documentation.
  CommandPage page() const;

 private:
  Command add_command(const std::string& name, std::function<int()> run);

  CLI::App* app_;
  ProgramState* state_;
};

/// Returns whether a file begins with this text.
bool begins_with(const std::filesystem::path& file, std::string_view text);
/// Returns whether a file is HDF5, npz or safetensors and has `mark` in its metadata, within the
/// first or last 64 KiB.
bool is_tensor_file_of(const std::filesystem::path& file, std::string_view mark);

#define COMMAND(name) void add_##name(Command& program);
#include "longhand/train/cli/commands.def"
#undef COMMAND

/// Runs the program with all its subcommands: parses the command line, runs the chosen command and
/// returns the exit code. Throws what the command throws.
int run_program(int argc, char** argv);

/// Prints a message as one line on stderr and returns the code.
int fail(const std::string& message, int code);

/// Returns the chosen command without the program name, such as "bench step"; "version" if none.
const std::string& chosen_command();

/// `longhand --version`
int print_version(bool json);

}  // namespace longhand::cli
