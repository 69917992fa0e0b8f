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

std::string list_of_topics() {
  std::string out = "Options of a configuration, by section:\n\n";
  for (const std::string& name : train::topic_names())
    if (name.find('.') == std::string::npos)
      out += fmt::format("  longhand help {:<12}{}\n", name, train::topic(name).summary);
  return out +
         "\nA variant or a task:        longhand help attention.NAME, longhand help data.NAME\n"
         "One option:                 longhand help optimizer.lr\n"
         "Options about something:    longhand help \"learning rate\"\n"
         "A command:                  longhand help bench step, or longhand bench step --help\n"
         "A file with all of them:    longhand config init TASK VARIANT\n";
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

std::string text_of(const HelpArguments& arguments, const CommandPage& program) {
  if (arguments.words.empty())
    return arguments.markdown ? train::reference_page() : list_of_topics();
  const std::string words = fmt::format("{}", fmt::join(arguments.words, " "));
  if (const std::string name = topic_named(words); !name.empty()) {
    const train::Topic topic = train::topic(name);
    if (arguments.markdown) return to_markdown(topic);
    const bool is_command = program.command(words) != nullptr;
    return to_text(topic) + (is_command ? "\nThe command: longhand " + words + " --help\n" : "");
  }
  if (const auto options = train::options_named(words); !options.empty())
    return train::to_text(options);
  if (const CommandPage* const command = command_named(program, arguments.words))
    return help_text(*command);
  if (words == "commands")
    return arguments.markdown
               ? "# Commands\n\nWhat `longhand COMMAND --help` prints.\n\n" + sections(program)
               : help_text(program);
  const auto about = train::options_about(words);
  if (about.empty()) train::topic(words);  // throws, naming the nearest
  return fmt::format("Options about \"{}\":\n\n{}", words, train::to_text(about));
}

int help(const HelpArguments& arguments, const CommandPage& program) {
  if (arguments.man_pages.empty())
    print_stdout("{}", text_of(arguments, program));
  else
    write_man_pages(program, arguments.man_pages);
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
