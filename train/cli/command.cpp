// The program's command line, built on CLI11.
#include "longhand/train/cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <type_traits>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/parallel.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/child.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cli/plugins.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/run/process.h"

namespace longhand::cli {

/// A command's function, and what run_program() does before calling it.
struct Runnable {
  std::function<int()> run;
  std::vector<std::function<void()>> checks;  // of arguments
  bool responds_to_signals = false, runs_on_ranks = false;
};

struct ProgramState {
  std::vector<std::string> plugins;
  std::optional<int64_t> threads;
  std::map<const CLI::App*, Runnable> commands;
};

namespace {

constexpr size_t longest_message = 4000;  // bytes; names in files may have any length
const std::set<std::string> free_texts = {"--prompt", "--caption", "--label", "--prefix"};

/// Accepts numbers of type T for which `holds`; the error is "--limit: expected …, got …".
template <class T, class F>
CLI::Validator number(const std::string& expected, F holds) {
  return CLI::Validator(
      [=](const std::string& text) {
        T value{};
        const bool ok = CLI::detail::lexical_cast(text, value) && holds(value);
        return ok ? std::string()
                  : "expected " + expected + ", got " + (text.empty() ? "an empty text" : text);
      },
      "");
}

CLI::Validator integer_from_1(int bits) {
  return number<int64_t>("an integer from 1 to 2^" + std::to_string(bits),
                         [=](int64_t n) { return n >= 1 && n <= int64_t{1} << bits; });
}

/// Accepts the value of an argument other than free text: neither empty nor a flag of the command.
CLI::Validator value_of(const CLI::App& app, const std::string& name, const std::string& value) {
  return CLI::Validator(
      [=, &app](const std::string& text) {
        if (text.empty())
          return "expected " + value + ", got an empty text (is a shell variable unset?)";
        if (!name.starts_with('-') || !is_flag(text) ||
            !app.get_option_no_throw(text.substr(0, text.find('='))))
          return std::string();
        const bool is_path = value.starts_with("DIR") || value.starts_with("FILE");
        return "expected " + value + ", got the flag " + text +
               (is_path ? "; write " + name.substr(name.rfind(',') + 1) + "=./" + text +
                              " for such a name"
                        : "");
      },
      "");
}

/// The type of a value, or of each element of an optional or a list.
template <class T>
struct Single {
  using type = T;
};
template <class T>
struct Single<std::optional<T>> : Single<T> {};
template <class T>
struct Single<std::vector<T>> : Single<T> {};

ArgumentPage page_of(const CLI::Option& option) {
  ArgumentPage page;
  page.names = split_at(option.get_name(/*positional=*/false, /*all_options=*/true), ',');
  page.positional = option.get_positional();
  page.value = option.get_type_name();
  page.text = option.get_description();
  std::vector<std::string> others;
  for (const CLI::Option* const other : option.get_excludes())
    others.push_back(other->get_positional() ? other->get_type_name() : other->get_name());
  if (!others.empty()) page.text += " (not with " + comma_list(others) + ")";
  page.required = option.get_required();
  page.repeated = option.get_items_expected_max() > 1;
  return page;
}

/// Adds --plugin to the program and to every subcommand that runs anything.
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
        ->check(value_of(app, "--plugin", "FILE.so"))
        ->expected(1)
        ->take_all();
  for (CLI::App* const command : subcommands) add_plugin_options(*command, plugins);
}

/// "longhand bench step"
std::string full_name(const CLI::App& app) {
  return (app.get_parent() ? full_name(*app.get_parent()) + " " : "") + app.get_name();
}

/// "bench step"
std::string name_of(const CLI::App& app) {
  const std::string name = full_name(app);
  return name.substr(name.find(' ') + 1);
}

CommandPage page_of(const CLI::App& app) {
  CommandPage page;
  page.name = full_name(app);
  page.text = app.get_description();
  page.footer = app.get_footer();
  // Options without a group are hidden: the words after --set.
  for (const CLI::Option* const option :
       app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); }))
    page.arguments.push_back(page_of(*option));
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    page.commands.push_back(page_of(*command));
  return page;
}

/// Returns the chosen command, group, or the program itself.
CLI::App& selected_app(CLI::App& app) {
  return app.get_subcommands().empty() ? app : selected_app(*app.get_subcommands().front());
}

/// Rewords an error of CLI11 in the terms of the help.
std::string message_of(const CLI::ParseError& error, const CLI::App& app) {
  const auto shown = [&](std::string text) {
    for (const CLI::Option* const each : app.get_options())
      if (const std::string name = each->get_name();
          !name.empty() && each->get_positional() &&
          (text + " ").find_first_of(" :") == name.size() && text.starts_with(name))
        return text.replace(0, name.size(), each->get_type_name());
    return text;
  };
  const std::string text = shown(error.what()), excludes = " excludes ", missing = ": 1 required ";
  if (const size_t at = text.find(excludes); at != std::string::npos)
    return text.substr(0, at) + " and " + shown(text.substr(at + excludes.size())) +
           " exclude each other";
  if (const size_t at = text.find(missing); at != std::string::npos)  // "… FILE.json missing"
    return text.substr(0, at) + ": expected " +
           text.substr(at + missing.size(), text.rfind(' ') - at - missing.size());
  return text.starts_with(": ") ? text.substr(2) : text;  // for an argument without a name
}

std::string command_chosen = "version";

/// Throws ConfigError for an unknown --table format, and for a caption or a label with a format
/// other than tex.
void check_table(const Common& arguments) {
  const auto& [columns, caption, label] = arguments.style;
  if (!arguments.table.empty()) train::check_format(arguments.table);
  check<ConfigError>(arguments.table == "tex" || (caption.empty() && label.empty()),
                     "--caption and --label apply only to LaTeX tables; expected --table tex");
  check<ConfigError>(label.find_first_of("{}%#\\") == std::string::npos, "--label ", label,
                     ": expected a name without {, }, %, # and \\");
}

/// Returns at most n bytes, starting at `begin`.
std::string text_at(const data::RegularFile& file, uint64_t begin, uint64_t n) {
  std::string text(std::min(n, file.size() - begin), '\0');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

Argument& Argument::required() {
  option_->required();
  return *this;
}

Argument& Argument::positive(int bits) {
  option_->check(integer_from_1(bits));
  return *this;
}

Argument& Argument::not_negative() {
  option_->check(
      number<double>("a number from 0 to 1e18", [](double x) { return x >= 0 && x <= 1e18; }));
  return *this;
}

Argument& Argument::repeated() {
  option_->expected(1)->take_all()->delimiter('\0');
  return *this;
}

Argument& Argument::one_word() {
  option_->expected(1)->take_all()->allow_extra_args(false);
  return *this;
}

Argument& Argument::excludes(const Argument& other) {
  option_->excludes(other.option_);
  return *this;
}

Argument& Argument::also(const std::string& text) {
  option_->description(option_->get_description() + text);
  return *this;
}

Command Command::add_command(const std::string& name, std::function<int()> run) {
  CLI::App* app = app_;
  for (const std::string& word : split_at(name, ' ')) {
    const auto group =
        app->get_subcommands([&](CLI::App* each) { return each->get_name() == word; });
    if (!group.empty()) {
      app = group[0];
      continue;
    }
    if (app != app_) app->require_subcommand(1);
    app = app->add_subcommand(word);
    // GCC 14 takes the text to be part of a temporary name.
    const std::string command = name_of(*app);
    const CommandText& text = text_of_command(command);
    app->description(text.line);
    app->footer(text.footer);
  }
  state_->commands[app].run = std::move(run);
  return {*app, *state_};
}

template <class T>
Argument Command::add(const std::string& name, T& to) {
  const std::string command = name_of(*app_);
  const auto& [value, text] = text_of_argument(command, name);
  CLI::Option* const option = app_->add_option(name, to, text)->type_name(value);
  if (value.ends_with(",...")) option->delimiter(',');
  using One = typename Single<T>::type;
  if constexpr (std::is_same_v<One, uint64_t>)
    option->check(number<One>("an integer from 0 to 2^63-1", [](One n) { return n >> 63 == 0; }));
  else if constexpr (std::is_integral_v<One>)
    option->check(number<One>("an integer", [](One) { return true; }));
  else if constexpr (std::is_floating_point_v<One>)
    option->check(number<One>("a number", [](One) { return true; }));
  else if (!free_texts.contains(name))
    option->check(value_of(*app_, name, value));
  return Argument(option);
}

#define LONGHAND_ADD(...) template Argument Command::add(const std::string&, __VA_ARGS__&)
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

Argument Command::flag(const std::string& name, bool& to) {
  return Argument(app_->add_flag(name, to, text_of_argument(name_of(*app_), name).text));
}

Argument Command::out(std::string& to, std::function<bool(const std::filesystem::path&)> is_own) {
  const auto force = std::make_shared<bool>(false);
  const Argument argument = add("-o,--out", to);
  flag("--force", *force);
  state_->commands[app_].checks.emplace_back([&to, force, is_own = std::move(is_own)] {
    std::error_code missing;
    if (to.empty() || !std::filesystem::exists(to, missing)) return;
    check<ConfigError>(std::filesystem::is_regular_file(to), "-o ", to,
                       ": expected a file, but this is a directory or a device");
    check<ConfigError>(*force || std::filesystem::file_size(to) == 0 || (is_own && is_own(to)),
                       "-o ", to, ": the file exists",
                       is_own ? ", and this command did not write it" : "",
                       "; choose another name, or replace it with --force");
  });
  return argument;
}

bool begins_with(const std::filesystem::path& file, std::string_view text) {
  return text_at(data::RegularFile(file), 0, text.size()) == text;
}

bool is_tensor_file_of(const std::filesystem::path& path, std::string_view mark) {
  constexpr uint64_t most = uint64_t{1} << 16;
  const data::RegularFile file(path);
  const std::string begin = text_at(file, 0, most);
  const bool safetensors =
      begin.size() > 8 && begin[8] == '{' && begin.substr(4, 4) == std::string(4, '\0');
  if (!begin.starts_with("\x89HDF") && !begin.starts_with("PK") && !safetensors) return false;
  const std::string end = text_at(file, file.size() > most ? file.size() - most : 0, most);
  return begin.find(mark) != std::string::npos || end.find(mark) != std::string::npos;
}

void Command::responds_to_signals() { state_->commands[app_].responds_to_signals = true; }
void Command::runs_on_ranks() { state_->commands[app_].runs_on_ranks = true; }

Argument Command::common(Common& a, const std::string& name) {
  if (const size_t space = name.find(' '); space != std::string::npos) {
    common(a, name.substr(0, space));
    return common(a, name.substr(space + 1));
  }
  if (name == "run") return add("run", a.run).required();
  if (name == "checkpoint") return add("--checkpoint", a.checkpoint);
  if (name == "split") return add("--split", a.split);
  if (name == "set") return add("--set", a.set).repeated();
  if (name ==
      "words")  // after those of --set, which come first because that option was added first
    return Argument(
        app_->add_option_function<std::vector<std::string>>(
                "assignments",
                [&a](const std::vector<std::string>& given) {
                  a.set.insert(a.set.end(), given.begin(), given.end());
                },
                "Further section.key=value assignments, as with --set")
            ->type_name("SECTION.KEY=VALUE")
            ->take_all()
            ->check([app = app_](const std::string& word) {
              if (word.find('=') != std::string::npos) return std::string();
              return "unexpected word \"" + word + "\"" +
                     (app->count("--set") > 0 ? "; expected section.key=value after --set" : "");
            })
            ->group(""));
  if (name == "seed") return add("--seed", a.seed);
  if (name == "threads") return add("--threads", state_->threads).positive();
  if (name == "quiet") return flag("-q,--quiet", a.quiet);
  if (name == "json") return flag("--json", a.json);
  if (name == "trust_paths") return flag("--trust-paths", a.trust_paths);
  if (name == "accept_data") return flag("--accept-data", a.accept_data);
  if (name == "table") {
    state_->commands[app_].checks.emplace_back([&a] { check_table(a); });
    const Argument table = add("--table", a.table);
    add("--columns", a.style.columns).one_word();
    add("--caption", a.style.caption);
    add("--label", a.style.label);
    return table;
  }
  if (name == "results")
    return out(a.out, [](const std::filesystem::path& file) {
      return begins_with(file, "{\n \"kind\": \"" + chosen_command() + "\",");
    });
  throw Error(concat_message("no argument is named ", name));
}

int fail(const std::string& message, int code) {
  std::string line;
  for (const char c : bounded(message, longest_message))
    line += c == '\n' ? (line.ends_with(':') ? " " : "; ") : std::string(1, c);
  if (launcher() && started_as().rank > 0) {
    // The first rank prints an error common to all ranks, and then ends the others.
    std::this_thread::sleep_for(std::chrono::seconds(3));
    line = train::rank_name(started_as().rank, train::host_name()) + ": " + line;
  }
  print_stderr("longhand: {}\n", line);
  return code;
}

/// Throws ConfigError if a command was started as one of several processes but runs in only one.
void check_ranks(const std::string& command, bool runs_on_ranks) {
  const int size = started_as().size;
  if (size == 1) return;
  if (launcher())
    check<ConfigError>(runs_on_ranks, "longhand-mpi ", command, ": was started as one of ", size,
                       " processes, but runs in a single one; start it without mpirun");
  else
    check<ConfigError>(!runs_on_ranks, "longhand ", command, ": was started as one of ", size,
                       " processes, but runs in a single one; use longhand-mpi ", command);
}

/// Sets the number of threads from the command line or the environment, with a warning if it is
/// more than the process can run at once.
void use_threads(std::optional<int64_t> given, bool quiet) {
  // Not by CLI11: 2.1 would read it for all commands, and 2.4 would ignore invalid values.
  const char* const text = std::getenv("LONGHAND_THREADS");
  if (!given && text && *text) {
    const std::string wrong = integer_from_1(30)(std::string(text));
    check<ConfigError>(wrong.empty(), "LONGHAND_THREADS: ", wrong);
    CLI::detail::lexical_cast(text, given.emplace());
  }
  if (!given) {
    if (launcher() && threads_given() > 0) set_threads(std::min(threads(), threads_given()));
    return;
  }
  const int cores = threads();
  set_threads(static_cast<int>(*given));
  if (*given > cores && !quiet)
    print_stderr(
        "longhand: warning: {} threads, but this process may use {}: it will be slower than "
        "with --threads {}, which is the default\n",
        *given, counted(cores, "core"), cores);
}

const std::string& chosen_command() { return command_chosen; }

CommandPage Command::page() const { return page_of(*app_); }

int run_program(int argc, char** argv) {
  CLI::App app{text_of_command("longhand").line, "longhand"};
  app.require_subcommand(0, 1);
  ProgramState state;
  Command program(app, state);
  bool version = false;
  Common common;
  program.flag("--version", version);
  program.common(common, "json threads");
#define COMMAND(name) add_##name(program);
#include "longhand/train/cli/commands.def"
#undef COMMAND
  add_plugin_options(app, state.plugins);
  const std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  // The scripts of longhand completion ask for completions of the words that follow, which may not
  // form a valid command line.
  if (words.size() > 2 && words[0] == "completion" && words[1] == "--") {
    for (const auto& [word, text] : completions(program.page(), {words.begin() + 2, words.end()}))
      print_stdout("{}{}{}\n", word, text.empty() ? "" : "\t", text);
    return success;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print_stdout("{}", help_text(page_of(selected_app(app))));
    return success;
  } catch (const CLI::ParseError& error) {
    std::string message = wrong_word(program.page(), words);
    if (message.empty()) message = message_of(error, selected_app(app));
    return fail(message + " (see " + full_name(selected_app(app)) + " --help)", usage_error);
  }
  const CLI::App& selected = selected_app(app);
  const Runnable& command = state.commands[&selected];  // without `run` if none is chosen
  if (!command.responds_to_signals) train::SignalRequests::decline();
  const CLI::Option* const flag = selected.get_option_no_throw("--quiet");
  const bool quiet =
      (launcher() && started_as().rank > 0) || (flag && flag->count() > 0 && flag->as<bool>());
  use_threads(state.threads, quiet);
  if (command.run) command_chosen = name_of(selected);
  if (version) return print_version(common.json);
  read_files_in_child_first();
  if (!command.run) return fail("expected a command; see longhand --help", usage_error);
  load_plugins(state.plugins);
  check_ranks(command_chosen, command.runs_on_ranks);
  if (command.runs_on_ranks) connect_ranks();
  for (const auto& check : command.checks) check();
  return command.run();
}

}  // namespace longhand::cli
