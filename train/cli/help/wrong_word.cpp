// The message for an unknown flag or command: which word it is, and what may be meant.
#include <algorithm>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/help/page.h"
#include "longhand/train/config/reference.h"

namespace longhand::cli {
namespace {

std::vector<std::string> words_of(const std::vector<CommandPage>& commands) {
  std::vector<std::string> out;
  for (const CommandPage& each : commands) out.push_back(each.word());
  return out;
}

/// The names of all commands below `page` for which holds(command).
template <class F>
void find_commands(const CommandPage& page, F holds, std::vector<std::string>& names) {
  for (const CommandPage& each : page.commands) {
    if (holds(each)) names.push_back(each.name);
    find_commands(each, holds, names);
  }
}

std::string unknown_command(const CommandPage& program, const CommandPage& at,
                            const std::string& word) {
  const std::vector<std::string> known = words_of(at.commands);
  std::vector<std::string> elsewhere;
  find_commands(
      program, [&](const CommandPage& each) { return each.word() == word; }, elsewhere);
  std::string hint = suggestion(word, known);
  if (at.flag("--" + word))
    hint = concat_message("; did you mean --", word, "?");
  else if (!elsewhere.empty())
    hint = "; did you mean " + or_list(elsewhere) + "?";
  else if (hint.empty())
    hint = "; expected " + or_list(known);
  // The program's own name begins every message.
  return concat_message(&at == &program ? "" : at.name + ": ", "unknown command \"", word, "\"",
                        hint);
}

/// "--learning-rate" for "optimizer.learning_rate".
std::string as_flag(const std::string& option) {
  return "--" + replaced(option.substr(option.find('.') + 1), '_', "-");
}

std::string unknown_flag(const CommandPage& program, const CommandPage& at, const std::string& word,
                         const std::string& next) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string flag = replaced(name.starts_with("--") ? name : "-" + name, '_', "-");

  // Options that --set of this command may set, each once.
  std::vector<std::string> options;
  const ArgumentPage* const set = at.flag("--set");
  if (set)
    for (const train::DeclaredOption& option : train::declared_options())
      if ((!set->value.starts_with("data.") || option.section() == "data") &&
          std::ranges::find(options, option.name()) == options.end())
        options.push_back(option.name());
  const auto remedy = [&](const std::string& wanted) {
    std::vector<std::string> out;
    for (const std::string& option : options) {
      const std::string whole = replaced("--" + option, '_', "-");  // as in --optimizer.lr=1e-3
      if (as_flag(option) != wanted && whole != wanted) continue;
      const bool has_value = equals != std::string::npos || (!next.empty() && !is_flag(next));
      const std::string value = equals != std::string::npos ? word.substr(equals + 1)
                                : has_value                 ? next
                                                            : "VALUE";
      out.push_back("--set " + shell_word(option + "=" + value));
    }
    return or_list(out);
  };
  const auto message = [&](const std::string& hint) {
    return concat_message(name, ": unknown flag of ", at.name, hint);
  };

  if (const std::string exact = remedy(flag); !exact.empty())
    return message("; did you mean " + exact + "?");
  // --attention and --task choose what the other options of their section belong to.
  for (const auto& [section, option] :
       {std::pair{"--attention", "--attention.type"}, {"--optimizer", "--optimizer.type"}})
    if (const std::string text = flag == section ? remedy(option) : ""; !text.empty())
      return message("; did you mean " + text + "?");
  std::vector<std::string> known;
  for (const ArgumentPage& each : at.arguments)
    if (!each.positional) known.push_back(each.name());
  const std::string near_flag = nearest(flag, known);
  std::vector<std::string> elsewhere;
  find_commands(
      program, [&](const CommandPage& each) { return each.flag(flag) != nullptr; }, elsewhere);
  if (near_flag.empty() && !elsewhere.empty())
    return message(concat_message("; it is one of ", or_list(elsewhere)));
  if (!near_flag.empty()) return message("; did you mean " + near_flag + "?");
  std::vector<std::string> flags_of_options;
  for (const std::string& option : options) flags_of_options.push_back(as_flag(option));
  const std::string near_option = nearest(flag, flags_of_options);
  if (!near_option.empty()) return message("; did you mean " + remedy(near_option) + "?");
  return message(set ? "; options of a configuration are given as --set SECTION.KEY=VALUE, and "
                       "longhand help lists them"
                     : "");
}

}  // namespace

std::string wrong_word(const CommandPage& program, const std::vector<std::string>& words) {
  const CommandPage* at = &program;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return "";
    if (!is_flag(word)) {
      if (at->commands.empty()) continue;
      const CommandPage* const command = at->command(word);
      if (!command) return unknown_command(program, *at, word);
      at = command;
      continue;
    }
    const bool is_long = word.starts_with("--");
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const ArgumentPage* const flag = at->flag(name);
    if (!flag) return unknown_flag(program, *at, word, i + 1 < words.size() ? words[i + 1] : "");
    if (!flag->value.empty() && word == name) ++i;
  }
  if (at == &program || at->commands.empty()) return "";
  return concat_message(at->name.substr(program.name.size() + 1),
                        ": expected a command: ", or_list(words_of(at->commands)));
}

}  // namespace longhand::cli
