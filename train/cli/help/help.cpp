// longhand help: the options of every section, task and variant, of commands, and manual pages.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/utf8.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/help/page.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/config/reference.h"

namespace longhand::cli {
namespace {

namespace fs = std::filesystem;

// ---- manual pages

/// Text in which no character has a meaning for troff.
std::string escaped(std::string_view text) {
  static const std::map<char, const char*> names = {{'\\', "\\(rs"}, {'-', "\\-"},
                                                    {'\'', "\\(aq"}, {'`', "\\(ga"},
                                                    {'^', "\\(ha"},  {'~', "\\(ti"}};
  std::string out;
  while (!text.empty()) {
    const auto [length, value] = utf8_character(text);
    const auto name = names.find(text[0]);
    if (length != 1)
      out += fmt::format("\\[u{:04X}]", value);
    else
      out += name == names.end() ? std::string(1, text[0]) : name->second;
    text.remove_prefix(length > 0 ? length : 1);
  }
  // A dot at the beginning of a line would be a command.
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + escaped(text) + "\\fR"; }

/// An argument of a macro that is one word for it.
std::string quoted(const std::string& text) {
  return "\"" + replaced(escaped(text), '"', "\\(dq") + "\"";
}

std::string header(const std::string& name, const std::string& section) {
  return fmt::format(".\\\" Written by: longhand help --man-pages\n.TH {} {} \"\" {} {}\n",
                     quoted(name), section, quoted(concat_message("Longhand ", version())),
                     quoted("Longhand"));
}

/// Lines of text: paragraphs, and examples, which are indented.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool literal = false;
  for (const std::string& line : split_at(text, '\n')) {
    const bool indented = line.starts_with(' ');
    if (indented && !literal) out += ".PP\n.RS 2\n.nf\n";
    if (!indented && literal) out += ".fi\n.RE\n.PP\n";
    literal = indented;
    const size_t begin =
        literal ? std::min<size_t>({2, line.find_first_not_of(' '), line.size()}) : 0;
    if (!line.empty()) out += escaped(line.substr(begin)) + "\n";
  }
  return out + (literal ? ".fi\n.RE\n" : "");
}

std::string usage(const CommandPage& page) {
  return bold(page.name) + " " + escaped(synopsis(page)) + "\n";
}

std::string list_of_arguments(const CommandPage& page, bool positional) {
  std::string out;
  for (const ArgumentPage& each : page.arguments) {
    if (each.positional != positional) continue;
    std::string head;
    if (!positional)
      for (const std::string& name : each.names) head += (head.empty() ? "" : ", ") + bold(name);
    if (!each.value.empty()) head += (head.empty() ? "" : " ") + italic(shown_value(each));
    out += ".TP\n" + head + "\n" + escaped(each.text) + "\n";
  }
  return out;
}

/// A subcommand within the page of its group.
std::string part(const CommandPage& page) {
  std::string out = ".SS " + quoted(page.name) + "\n" + usage(page) + ".PP\n" + escaped(page.text) +
                    ".\n" + list_of_arguments(page, true) + list_of_arguments(page, false);
  if (!page.footer.empty()) out += ".PP\n" + paragraphs(wrapped_lines(page.footer, 100));
  for (const CommandPage& each : page.commands) out += part(each);
  return out;
}

/// The section of commands.txt.
std::string pairs(const std::string& section) {
  std::string out;
  for (const auto& [name, about] : text_of_command(section).arguments)
    out += ".TP\n" + bold(name) + "\n" + escaped(about.text) + "\n";
  return out;
}

/// The text of a manual page in the language of man(7): of a command with its subcommands, or of the whole program.
std::string manual_page(const CommandPage& page) {
  const bool is_program = page.name.find(' ') == std::string::npos;
  const std::string name = replaced(page.name, ' ', "-");
  std::string out = header(name, "1");
  out += ".SH NAME\n" + escaped(name) + " \\- " + escaped(page.text) + "\n";
  out += ".SH SYNOPSIS\n" + usage(page);
  out += ".SH DESCRIPTION\n" + escaped(page.text) + ".\n";
  if (!is_program && !page.footer.empty())
    out += ".PP\n" + paragraphs(wrapped_lines(page.footer, 100));
  if (is_program) {
    out += ".PP\nEach command has its own page: the page of " + bold("longhand train") + " is " +
           bold("longhand-train") + "(1).\n.SH COMMANDS\n";
    for (const CommandPage& each : page.commands)
      out += ".TP\n" + bold(each.word()) + "\n" + escaped(each.text) + "\n";
  }
  if (const std::string list = list_of_arguments(page, true); !list.empty())
    out += ".SH ARGUMENTS\n" + list;
  out += ".SH OPTIONS\n" + list_of_arguments(page, false);
  if (!is_program && !page.commands.empty()) {
    out += ".SH COMMANDS\n";
    for (const CommandPage& each : page.commands) out += part(each);
  }
  out += ".SH \"EXIT STATUS\"\n" + pairs("Exit codes");
  out += ".SH ENVIRONMENT\n" + pairs("Environment");
  out += ".SH \"SEE ALSO\"\n";
  if (!is_program) out += bold("longhand") + "(1),\n";
  out += bold("longhand.toml") + "(5)\n";
  return out;
}

/// The same for the options of a configuration: longhand.toml(5).
std::string options_manual_page() {
  std::string out = header("longhand.toml", "5");
  out += ".SH NAME\nlonghand.toml \\- options of a configuration of " + bold("longhand") +
         "\n.SH DESCRIPTION\n"
         "A configuration is a file in TOML with the sections [model], [attention], [data],\n"
         "[train] and [optimizer]. " +
         bold("longhand config init") +
         " writes one with every option;\noptions are overridden by " + bold("--set") + " " +
         italic("SECTION.KEY=VALUE") + ".\n";
  for (const std::string& name : train::topic_names()) {
    const train::Topic topic = train::topic(name);
    const bool is_section = name.find('.') == std::string::npos;
    out += is_section ? ".SH " + quoted("[" + name + "]") : ".SS " + quoted(name);
    out += "\n" + escaped(topic.summary) + ".\n";
    for (const Field& field : topic.options)
      out += ".TP\n" + bold(field.name) + " = " + escaped(field.default_value) + "\n" +
             escaped(field.meaning + (field.condition.empty() ? "" : "; with " + field.condition) +
                     " (" + train::accepted_values(field) + ")") +
             "\n";
  }
  out += ".SH \"SEE ALSO\"\n" + bold("longhand") + "(1),\n" + bold("longhand-config") + "(1),\n" +
         bold("longhand-help") + "(1)\n";
  return out;
}

// ---- help

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
  std::map<std::string, std::string> pages{{"longhand.1", manual_page(program)},
                                           {"longhand.toml.5", options_manual_page()}};
  for (const CommandPage& each : program.commands)
    pages["longhand-" + each.word() + ".1"] = manual_page(each);
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
               ? "# Commands\n\nThe output of `longhand COMMAND --help`.\n\n" + sections(program)
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
