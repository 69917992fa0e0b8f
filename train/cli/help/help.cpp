// longhand help: the options of every section, task and variant, of commands, and manual pages.
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "longhand/core/error.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/help/page.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/config/reference.h"

namespace longhand::cli {
namespace {

namespace fs = std::filesystem;

struct HelpArguments {
  std::vector<std::string> words;  // empty: list the topics
  bool markdown = false;
  std::string man_pages;  // a folder
};

void list_topics() {
  print_stdout("Options of a configuration, by section:\n\n");
  for (const std::string& name : train::topic_names())
    if (name.find('.') == std::string::npos)
      print_stdout("  longhand help {:<12}{}\n", name, train::topic(name).summary);
  print_stdout(
      "\nA variant or a task:        longhand help attention.NAME, longhand help data.NAME\n"
      "One option:                 longhand help optimizer.lr\n"
      "Options about something:    longhand help \"learning rate\"\n"
      "A command:                  longhand help bench step, or longhand bench step --help\n"
      "A file with all of them:    longhand config init TASK VARIANT\n");
}

void write_man_pages(const CommandPage& program, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  check<DataError>(!error, "cannot create ", folder.string(), ": ",
                   data::system_reason(error.value()));
  std::map<std::string, std::string> pages{{"longhand.1", manual_page(program, version())},
                                           {"longhand.toml.5", options_manual_page(version())}};
  for (const CommandPage& each : program.commands)
    pages["longhand-" + each.word() + ".1"] = manual_page(each, version());
  for (const auto& [name, text] : pages)
    check<ConfigError>(
        !fs::exists(folder / name) ||
            begins_with(folder / name, ".\\\" Written by: longhand help --man-pages\n"),
        (folder / name).string(),
        ": the file exists, and this command did not write it; choose another folder");
  for (const auto& [name, text] : pages) data::write_file_durably(folder / name, text);
}

/// The topic that a word names, also the bare name of a variant or task: "performer". Empty: none.
std::string topic_named(const std::string& word) {
  std::string found;
  for (const std::string& name : train::topic_names()) {
    if (name == word) return name;
    if (name.ends_with("." + word)) found = name;
  }
  return found;
}

/// The command that these words name; null: none.
const CommandPage* command_named(const CommandPage& program,
                                 const std::vector<std::string>& words) {
  const CommandPage* at = &program;
  for (const std::string& word : words)
    if (at) at = at->command(word);
  return at;
}

/// The help of a command and of those below it, as sections of a Markdown page.
std::string sections(const CommandPage& page) {
  std::string out = fmt::format("## {}\n\n```text\n{}```\n\n", page.name, help_text(page));
  for (const CommandPage& each : page.commands) out += sections(each);
  return out;
}

int help(const HelpArguments& arguments, const CommandPage& program) {
  if (!arguments.man_pages.empty()) {
    write_man_pages(program, arguments.man_pages);
    return success;
  }
  if (arguments.words.empty()) {
    if (arguments.markdown)
      print_stdout("{}", train::reference_page());
    else
      list_topics();
    return success;
  }
  const std::string words = fmt::format("{}", fmt::join(arguments.words, " "));
  if (const std::string name = topic_named(words); !name.empty()) {
    const train::Topic topic = train::topic(name);
    print_stdout("{}", arguments.markdown ? to_markdown(topic) : to_text(topic));
    if (!arguments.markdown && program.command(words))
      print_stdout("\nThe command: longhand {} --help\n", words);
    return success;
  }
  if (const auto options = train::options_named(words); !options.empty()) {
    print_stdout("{}", train::to_text(options));
    return success;
  }
  if (const CommandPage* const command = command_named(program, arguments.words)) {
    print_stdout("{}", help_text(*command));
    return success;
  }
  if (words == "commands") {
    if (arguments.markdown)
      print_stdout("# Commands\n\nWhat `longhand COMMAND --help` prints.\n\n{}", sections(program));
    else
      print_stdout("{}", help_text(program));
    return success;
  }
  const auto about = train::options_about(words);
  if (about.empty()) train::topic(words);  // throws, naming the nearest
  print_stdout("Options about \"{}\":\n\n{}", words, train::to_text(about));
  return success;
}

}  // namespace

void add_help(Command& program) {
  auto [c, a] = program.command<HelpArguments>(
      "help", [program](const HelpArguments& given) { return help(given, program.page()); });
  c.add("topic", a->words);
  c.flag("--markdown", a->markdown);
  c.add("--man-pages", a->man_pages);
}

}  // namespace longhand::cli
