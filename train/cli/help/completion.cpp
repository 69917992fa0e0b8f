// longhand completion: scripts that complete the command line in a shell, and what may complete a word of it. The
// scripts ask the program itself (see run_program()), so that they know its commands, options, variants and tasks.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/config/reference.h"

namespace longhand::cli {
namespace {

constexpr const char* bash =
#include "longhand/train/cli/help/completion.bash"
    ;
constexpr const char* zsh =
#include "longhand/train/cli/help/completion.zsh"
    ;
constexpr const char* fish =
#include "longhand/train/cli/help/completion.fish"
    ;

const std::map<std::string, const char*> scripts = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

/// Whether a file is a script of this or another version, and nothing else.
bool is_script(const std::filesystem::path& file) {
  const std::string text = data::read_text_file(file), mark = "written by: longhand completion";
  return text.find(mark) == text.rfind(mark) && std::ranges::any_of(scripts, [&](const auto& each) {
           const std::string_view script = each.second;
           const size_t last = script.rfind('\n', script.size() - 2) + 1;
           return text.starts_with(script.substr(0, script.find('\n') + 1)) &&
                  text.ends_with(script.substr(last)) && text.find(mark) != std::string::npos;
         });
}

struct CompletionArguments : Common {
  std::string shell;
};

int completion(const CompletionArguments& a) {
  const auto script = scripts.find(a.shell);
  check<ConfigError>(script != scripts.end(), "completion: there is no script for ", a.shell,
                     "; expected bash, zsh or fish");
  write_or_print(a.out, script->second);
  return success;
}

// ---- what may complete a word

using Candidates = std::vector<std::pair<std::string, std::string>>;

/// Words, each with `before` in front of it.
Candidates without_texts(const std::vector<std::string>& words, const std::string& before = "") {
  Candidates out;
  for (const std::string& word : words) out.emplace_back(before + word, "");
  return out;
}

/// Words of --set: "attention." and the other sections, then "attention.type=", then its values.
Candidates assignments(const std::string& word, const std::string& prefix) {
  Candidates out;
  const size_t equals = word.find('=');
  const auto add = [&](const std::string& text, const std::string& meaning) {
    const bool is_new =
        std::ranges::none_of(out, [&](const auto& each) { return each.first == text; });
    if (text.starts_with(prefix) && is_new) out.emplace_back(text, meaning);
  };
  for (const train::DeclaredOption& option : train::declared_options()) {
    const std::string name = option.name();
    if (equals != std::string::npos) {
      if (name != word.substr(0, equals)) continue;
      for (const std::string& value : train::choices(option.field)) add(name + "=" + value, "");
    } else if (word.find('.') != std::string::npos) {
      add(name + "=", option.field.meaning);
    } else {
      const std::string section = name.substr(0, name.find('.'));
      add(section + ".", train::topic(section).summary);
    }
  }
  return out;
}

/// The values of an argument, of which `word` is the beginning. The name of the value says what it is.
Candidates values_of(const ArgumentPage& argument, const std::string& word) {
  const std::string& value = argument.value;
  const auto is = [&](const char* name) { return argument.name() == name; };
  if (value.find("KEY=VALUE") != std::string::npos)
    return assignments(word, value.starts_with("data.") ? "data." : "");
  if (value.starts_with("DIR")) return {{":directories", ""}};
  for (const char* const file : {"FILE", "CONFIG", "SWEEP", "PATH"})
    if (value.starts_with(file)) return {{":files", ""}};
  if (value == "SPLIT") return without_texts({"train", "validation", "test"});
  if (value == "FORMAT") return without_texts({"md", "csv", "tex", "text"});
  if (value == "L|M") return without_texts({"L", "M"});
  if (value == "SHELL") return without_texts({"bash", "zsh", "fish"});
  if (value == "VARIANT" || is("--variant")) return without_texts(attention::names());
  // A list separated by commas.
  if (is("--attention"))
    return without_texts(attention::names(), word.substr(0, word.rfind(',') + 1));
  if (is("--checkpoint")) return without_texts({"best", "last"});
  Candidates out;
  if (value == "TASK")
    for (const std::string& name : data::task_names())
      out.emplace_back(name, data::task_summary(name));
  if (value == "TOPIC") {
    for (const std::string& name : train::topic_names())
      out.emplace_back(name, train::topic(name).summary);
    for (const train::DeclaredOption& option : train::declared_options())
      if (word.find('.') != std::string::npos)
        out.emplace_back(option.full_name(), option.field.meaning);
  }
  return out;
}

}  // namespace

Candidates completions(const CommandPage& program, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const CommandPage* at = &program;
  const ArgumentPage* flag = nullptr;  // whose value comes next
  bool sets = false;                   // whether --set was given
  size_t positionals = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (flag) {
      flag = nullptr;
    } else if (is_flag(word)) {
      flag = at->flag(word);
      sets = sets || word.starts_with("--set");
      if (flag && flag->value.empty()) flag = nullptr;
    } else if (const CommandPage* const command = at->command(word)) {
      at = command;
    } else {
      ++positionals;
    }
  }
  const std::string& word = words.back();
  Candidates all;
  if (flag) {
    all = values_of(*flag, word);
  } else if (const size_t equals = word.find('=');
             word.starts_with("--") && equals != std::string::npos) {
    if (const ArgumentPage* const of = at->flag(word.substr(0, equals)))
      for (const auto& [value, text] : values_of(*of, word.substr(equals + 1)))
        if (!value.starts_with(':')) all.emplace_back(word.substr(0, equals + 1) + value, text);
  } else if (word.starts_with('-')) {
    for (const ArgumentPage& each : at->arguments)
      if (!each.positional) all.emplace_back(each.name(), each.text);
  } else {
    for (const CommandPage& each : at->commands) all.emplace_back(each.word(), each.text);
    const ArgumentPage* positional = nullptr;
    size_t index = 0;
    for (const ArgumentPage& each : at->arguments) {
      if (!each.positional) continue;
      if (index == positionals || (index < positionals && each.repeated)) positional = &each;
      ++index;
    }
    if (positional) all = values_of(*positional, word);
    const ArgumentPage* const set = at->flag("--set");
    if (set && sets) {
      const Candidates more = values_of(*set, word);
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  Candidates out;
  for (auto& each : all)
    if (each.first.starts_with(':') || each.first.starts_with(word)) out.push_back(std::move(each));
  return out;
}

void add_completion(Command& program) {
  auto [c, a] = program.command<CompletionArguments>("completion", completion);
  c.add("shell", a->shell).required();
  c.out(a->out, is_script);
}

}  // namespace longhand::cli
