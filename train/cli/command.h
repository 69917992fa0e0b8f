// Command: a subcommand as its file declares it. command.cpp is the only file that uses CLI11.
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
  stopped = 75,     // by a signal, and saved: train --resume continues
};

/// Arguments that several subcommands have, which Command::common() adds. Those of a command derive from it.
struct Common {
  std::string run, checkpoint = "best", split = "test";
  std::vector<std::string> set;  // section.key=value
  std::optional<uint64_t> seed;
  std::string out;          // a file to write
  std::string table;        // a format of to_format(): only a table is printed
  train::TableStyle style;  // of the table
  bool quiet = false;
  bool json = false;
  bool trust_paths = false;  // see train::SavedModel::check_paths()
  bool accept_data = false;
};

struct ProgramState;  // all commands, and flags of all of them

/// A flag or positional argument of a command.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& required();
  /// Requires an integer from 1 to 2^bits, or several of them.
  Argument& positive(int bits = 30);
  /// Requires a number of at least 0.
  Argument& not_negative();
  /// May be given several times, with one value each.
  Argument& repeated();
  /// Takes values from one word alone, so that a positional argument may follow.
  Argument& one_word();
  /// Cannot be combined with `other`.
  Argument& excludes(const Argument& other);
  /// Adds to its text.
  Argument& also(const std::string& text);

 private:
  CLI::Option* option_;
};

/// A subcommand or the whole program. Values are written to the references given
/// to add() before the command runs: keep them in an object that the command's function owns.
class Command {
 public:
  Command(CLI::App& app, ProgramState& state) : app_(&app), state_(&state) {}

  /// Adds a subcommand such as "train" or "bench step", and the group "bench" with its first one; help/commands.txt
  /// has their texts. run(arguments) executes it and returns the exit code. It throws errors, which main()
  /// converts to a message and an exit code.
  template <class Arguments, class F>
  std::pair<Command, std::shared_ptr<Arguments>> command(const std::string& name, F run) {
    const auto arguments = std::make_shared<Arguments>();
    return {add_command(name, [arguments, run] { return run(*arguments); }), arguments};
  }

  /// Adds an argument: a flag such as "--limit" or "-o,--out", or a positional one such as "run", of which
  /// help/commands.txt has the text and the name of the value. T is std::string, int64_t, double,
  /// std::optional of int64_t, uint64_t or double, or a std::vector of std::string, int64_t or double; if
  /// the name of the value ends with ",...", values are separated by commas.
  template <class T>
  Argument add(const std::string& name, T& to);
  /// Adds a flag without a value.
  Argument flag(const std::string& name, bool& to);
  /// Adds -o, --out, for a file to write, and --force. Before the command does anything, it is refused if the
  /// file exists and `is_own` does not hold for it, which says whether this command wrote it (null: the file may
  /// have been edited since); --force replaces any file.
  Argument out(std::string& to, std::function<bool(const std::filesystem::path&)> is_own);
  /// The command responds to train::SignalRequests. Others are ended by signals as usual.
  void responds_to_signals();
  /// The command runs on several processes with longhand-mpi, which refuses all others.
  void runs_on_ranks();

  /// Adds the arguments of Common with these names, in this order, and returns the last one:
  ///
  ///     run          the directory of a run, required
  ///     checkpoint   --checkpoint, of a run
  ///     split        --split
  ///     set          --set
  ///     words        words after the positional arguments, which count as assignments too, so that
  ///                  `--set a.b=1 c.d=2` works: after the positional ones
  ///     seed, threads, quiet, json
  ///     trust_paths  for commands that read the data that a checkpoint names
  ///     accept_data  for commands that compare data with the hashes in a checkpoint
  ///     results      -o, for a command that gives Results
  ///     table        --table, and what it prints
  ///
  /// With --json a command prints one object, see output/answer.h.
  Argument common(Common& common, const std::string& names);

  /// The command and those below it, as documentation shows them.
  CommandPage page() const;

 private:
  Command add_command(const std::string& name, std::function<int()> run);

  CLI::App* app_;
  ProgramState* state_;
};

/// Whether a file begins with this text.
bool begins_with(const std::filesystem::path& file, std::string_view text);
/// Whether a file is HDF5, npz or safetensors, and its writer has put `mark` into its metadata, which are
/// in the first or the last 64 KiB.
bool is_tensor_file_of(const std::filesystem::path& file, std::string_view mark);

#define COMMAND(name) void add_##name(Command& program);
#include "longhand/train/cli/commands.def"
#undef COMMAND

/// The program with all its subcommands: parses the command line, runs the chosen command and
/// returns the exit code. Throws what the command throws.
int run_program(int argc, char** argv);

/// Prints a message as one line on stderr and returns the code.
int fail(const std::string& message, int code);

/// The chosen command without the name of the program, such as "bench step"; "version" if none is.
const std::string& chosen_command();

/// `longhand --version`
int print_version(bool json);

}  // namespace longhand::cli
