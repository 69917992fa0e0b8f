// The command line of the program, built on CLI11.
#include "longhand/train/cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "longhand/core/parallel.h"
#include "longhand/train/cli/child.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/plugins.h"
#include "longhand/train/run/process.h"

namespace longhand::cli {
namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 success; 1 any other error; 2 invalid command line or configuration; 3 data or\n"
    "checkpoint missing or invalid; 4 training diverged, or the loss or the weights of a model "
    "are\n"
    "not finite; 75 stopped by a signal, saved, resumable. Output to a closed pipe is dropped; "
    "any\n"
    "other failure to write a result is an error.\n"
    "Environment: LONGHAND_THREADS, LONGHAND_SEED, LONGHAND_ISA (baseline, avx2 or avx512),\n"
    "LONGHAND_NO_LOCKS (1: write runs and sweeps on file systems without locks), LONGHAND_PLUGINS\n"
    "(files of plugins, separated by colons), NO_COLOR.";

constexpr size_t longest_message = 4000;  // bytes: names in files may be of any length

/// Throws for an environment variable whose value its option does not accept. CLI11 2.1 does so
/// itself; 2.4 ignores such a value.
void check_environment(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_envname().empty() || !option->empty()) continue;
    const char* const text = std::getenv(option->get_envname().c_str());
    if (!text || !*text) continue;
    option->add_result(text);
    option->run_callback();  // throws
  }
  for (CLI::App* const subcommand : app.get_subcommands()) check_environment(*subcommand);
}

/// Accepts numbers of type T for which `holds`; `expected` completes the error: "--limit: expected …".
template <class T, class F>
CLI::Validator number(const std::string& name, const std::string& expected, F holds) {
  return CLI::Validator(
      [=](const std::string& text) {
        T value{};
        const bool ok = CLI::detail::lexical_cast(text, value) && holds(value);
        return ok ? std::string() : name + ": expected " + expected + ", got " + text;
      },
      "");
}

std::string wrapped(const std::string& text, size_t width) {
  std::string out, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

/// Adds --plugin to the program and to every subcommand that runs something.
void add_plugin_options(CLI::App& app, std::vector<std::string>& plugins) {
  const auto subcommands = app.get_subcommands([](CLI::App*) { return true; });
  if (subcommands.empty() || !app.get_parent())
    app.add_option_function<std::vector<std::string>>(
           "--plugin",
           [&plugins](const std::vector<std::string>& files) {
             plugins.insert(plugins.end(), files.begin(), files.end());
           },
           "Load attention variants and tasks from a shared library; may be repeated")
        ->type_name("FILE.so")
        ->expected(1)
        ->take_all();
  for (CLI::App* const command : subcommands) add_plugin_options(*command, plugins);
}

/// Sets the help of a command and its subcommands to 100 columns.
void wrap_help(CLI::App& app) {
  constexpr size_t column = 30;
  app.get_formatter()->column_width(column);
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; }))
    option->description(wrapped(option->get_description(), 100 - column));
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) wrap_help(*command);
}

}  // namespace

struct Command::Program {
  std::vector<std::string> plugins;
  std::function<int()> selected;
  std::optional<int64_t> threads;
  bool responds_to_signals = false;
  std::vector<const bool*> quiet;  // the flags of all commands
};

Argument& Argument::required() {
  option_->required();
  return *this;
}

Argument& Argument::positive() {
  option_->check(number<int64_t>(option_->get_name(), "an integer of at least 1",
                                 [](int64_t n) { return n >= 1 && n <= int64_t{1} << 30; }));
  return *this;
}

Argument& Argument::not_negative() {
  option_->check(number<double>(option_->get_name(), "a number of at least 0",
                                [](double x) { return x >= 0 && x < 1e18; }));
  return *this;
}

Argument& Argument::repeated() {
  option_->expected(1)->take_all();
  return *this;
}

Argument& Argument::separated_by_commas() {
  option_->delimiter(',');
  return *this;
}

Argument& Argument::excludes(const Argument& other) {
  option_->excludes(other.option_);
  return *this;
}

Argument& Argument::environment(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

Command Command::command(const std::string& name, const std::string& text,
                         std::function<int()> run) {
  CLI::App& app = *app_->add_subcommand(name, text);
  app.callback([program = program_, run = std::move(run)] { program->selected = run; });
  return {app, *program_};
}

Command Command::group(const std::string& name, const std::string& text) {
  CLI::App& app = *app_->add_subcommand(name, text);
  app.require_subcommand(1);
  return {app, *program_};
}

template <class T>
Argument Command::add(const std::string& name, T& to, const std::string& value,
                      const std::string& text) {
  return Argument(app_->add_option(name, to, text)->type_name(value));
}

#define LONGHAND_ADD(...)                                                              \
  template Argument Command::add(const std::string&, __VA_ARGS__&, const std::string&, \
                                 const std::string&)
LONGHAND_ADD(std::string);
LONGHAND_ADD(int64_t);
LONGHAND_ADD(double);
LONGHAND_ADD(std::optional<int64_t>);
LONGHAND_ADD(std::optional<uint64_t>);
LONGHAND_ADD(std::optional<double>);
LONGHAND_ADD(std::vector<std::string>);
LONGHAND_ADD(std::vector<int64_t>);
LONGHAND_ADD(std::vector<double>);
#undef LONGHAND_ADD

Argument Command::flag(const std::string& name, bool& to, const std::string& text) {
  return Argument(app_->add_flag(name, to, text));
}

void Command::responds_to_signals() {
  app_->parse_complete_callback([program = program_] { program->responds_to_signals = true; });
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::set(Common& common, const std::string& value, const std::string& text) {
  app_->add_option("--set", common.set, text)
      ->type_name(value)
      ->expected(1)
      ->take_all()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Command::words_to_set(Common& common) {
  app_->add_option("assignments", common.set,
                   "Further section.key=value assignments, as with --set")
      ->type_name("SECTION.KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& word) {
        return word.find('=') == std::string::npos
                   ? "expected section.key=value, got \"" + word + "\""
                   : std::string();
      })
      ->group("");
}

Argument Command::seed(Common& common) {
  return add("--seed", common.seed, "N", "Seed of all random numbers (0 … 2^63-1)");
}

void Command::threads() {
  add("--threads", program_->threads, "N", "Number of threads; results do not depend on it")
      .positive()
      .environment("LONGHAND_THREADS");
}

void Command::quiet(Common& common) {
  flag("-q,--quiet", common.quiet, "Print only errors and results");
  program_->quiet.push_back(&common.quiet);
}

void Command::trust_paths(Common& common) {
  flag("--trust-paths", common.trust_paths,
       "Open the files that the checkpoint names, even if config.toml of its run does not name "
       "them");
}

void Command::accept_data(Common& common) {
  flag("--accept-data", common.accept_data,
       "Use the data as they are, even if their hash is not the one in the checkpoint");
}

void Command::json(bool& to) { flag("--json", to, "Print only the result, as JSON, to stdout"); }

int fail(const std::string& message, int code) {
  std::string line;
  for (const char c : printable(bounded(message, longest_message)))
    line += c == '\n' ? (line.ends_with(':') ? " " : "; ") : std::string(1, c);
  print_stderr("longhand: {}\n", line);
  return code;
}

/// Sets the number of threads, with a warning if it is more than the process may run at a time.
void use_threads(int64_t wanted, bool quiet) {
  const int cores = threads();
  set_threads(static_cast<int>(wanted));
  if (wanted > cores && !quiet)
    print_stderr(
        "longhand: warning: {} threads, but this process may use {} {}: it will be slower than "
        "with "
        "--threads {}, which is the default\n",
        wanted, cores, cores == 1 ? "core" : "cores", cores);
}

int run_program(int argc, char** argv) {
  CLI::App app{"Longhand trains long-sequence Transformers with efficient attention on CPUs."};
  app.name("longhand");
  app.require_subcommand(0, 1);
  app.footer(exit_codes);
  bool version = false, json = false;
  app.add_flag("--version", version, "Print the version and the compute backend");
  app.add_flag("--json", json, "With --version: print as JSON");
  Command::Program chosen;
  Command program(app, chosen);
  program.threads();
#define COMMAND(name) add_##name(program);
#include "longhand/train/cli/commands.def"
#undef COMMAND
  add_plugin_options(app, chosen.plugins);
  wrap_help(app);
  try {
    app.parse(argc, argv);
    check_environment(app);
  } catch (const CLI::CallForHelp&) {
    std::string text = app.help();
    while (text.ends_with('\n')) text.pop_back();
    print_stdout("{}\n", text);
    return success;
  } catch (const CLI::ParseError& error) {
    std::string path = app.get_name();
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
      at = at->get_subcommands().front();
      path += " " + at->get_name();
    }
    return fail(std::string(error.what()) + " (see " + path + " --help)", usage_error);
  }
  if (!chosen.responds_to_signals) train::SignalRequests::decline();
  const bool quiet =
      std::any_of(chosen.quiet.begin(), chosen.quiet.end(), [](const bool* flag) { return *flag; });
  if (chosen.threads) use_threads(*chosen.threads, quiet);
  if (version) return print_version(json);
  read_files_in_child_first();
  if (!chosen.selected) return fail("expected a command; see longhand --help", usage_error);
  load_plugins(chosen.plugins);
  return chosen.selected();
}

}  // namespace longhand::cli
