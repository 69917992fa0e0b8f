#include "longhand/train/cli/help/page.h"

#include <algorithm>

namespace longhand::cli {

const ArgumentPage* CommandPage::flag(std::string_view flag_name) const {
  for (const ArgumentPage& each : arguments)
    if (!each.positional &&
        std::find(each.names.begin(), each.names.end(), flag_name) != each.names.end())
      return &each;
  return nullptr;
}

const CommandPage* CommandPage::command(std::string_view word) const {
  for (const CommandPage& each : commands)
    if (each.word() == word) return &each;
  return nullptr;
}

std::string shown_value(const ArgumentPage& argument) {
  const bool dots = argument.repeated && !argument.value.ends_with("...");
  return argument.value + (dots ? "..." : "");
}

std::string synopsis(const CommandPage& page) {
  std::string out = "[OPTIONS]";
  for (const bool positional : {true, false})
    for (const ArgumentPage& each : page.arguments) {
      if (each.positional != positional || (!positional && !each.required)) continue;
      const std::string text = (positional ? "" : each.name() + " ") + shown_value(each);
      out += each.required ? " " + text : " [" + text + "]";
    }
  return out + (page.commands.empty() ? "" : " COMMAND");
}

bool is_flag(std::string_view word) {
  const bool number = word.size() > 1 && (word[1] == '.' || ('0' <= word[1] && word[1] <= '9'));
  return word.size() > 1 && word[0] == '-' && !number;
}

const std::vector<std::pair<std::string, std::string>>& exit_code_meanings() {
  static const std::vector<std::pair<std::string, std::string>> codes = {
      {"0", "success"},
      {"1", "any other error"},
      {"2", "invalid command line or configuration"},
      {"3", "data or checkpoint missing or invalid"},
      {"4", "training diverged, or the loss or the weights of a model are not finite"},
      {"75", "stopped by a signal, saved, resumable"},
  };
  return codes;
}

const std::vector<std::pair<std::string, std::string>>& environment_variables() {
  static const std::vector<std::pair<std::string, std::string>> variables = {
      {"LONGHAND_THREADS", "number of threads, where --threads is not given"},
      {"LONGHAND_SEED", "seed, where --seed is not given"},
      {"LONGHAND_ISA", "instruction set: baseline, avx2 or avx512"},
      {"LONGHAND_LATE_SECONDS",
       "seconds after which longhand-mpi warns about ranks that others wait for; 10 by default"},
      {"LONGHAND_NO_LOCKS", "1: write runs and sweeps on file systems without locks"},
      {"LONGHAND_PLUGINS", "files of plugins, separated by colons; see --plugin"},
      {"NO_COLOR", "print without colours"},
  };
  return variables;
}

}  // namespace longhand::cli
