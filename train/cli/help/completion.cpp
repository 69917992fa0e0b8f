// longhand completion: scripts that complete the command line in a shell. They ask the program itself
// (see run_program()), so that they know its commands, options, variants and tasks.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/common.h"

namespace longhand::cli {
namespace {

constexpr const char* bash =
    R"(# Completion of longhand in bash, written by: longhand completion bash
_longhand() {
  local line=${COMP_LINE:0:COMP_POINT} tab=$'\t' word kept candidate
  local -a words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  word=${words[-1]}
  # Readline completes what follows the last = or : of a word where these separate words.
  kept=
  [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && kept=${word%"${word##*=}"}
  COMPREPLY=()
  while IFS= read -r candidate; do
    candidate=${candidate%%"$tab"*}
    case $candidate in
      :files) compopt -o filenames 2> /dev/null
        while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "$word") ;;
      :directories) compopt -o filenames 2> /dev/null
        while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -d -- "$word") ;;
      *) [[ $candidate == *[=.] ]] && compopt -o nospace 2> /dev/null
        COMPREPLY+=("${candidate#"$kept"}") ;;
    esac
  done < <("${words[0]}" completion -- "${words[@]:1}" 2> /dev/null)
}
complete -F _longhand longhand
)";

constexpr const char* zsh = R"(#compdef longhand
# Completion of longhand in zsh, written by: longhand completion zsh
_longhand() {
  local line word tab=$'\t'
  local -a candidates unfinished
  for line in "${(@f)$("$words[1]" completion -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null)}"; do
    word=${line%%$tab*}
    case $word in
      '') ;;
      :files) _files ;;
      :directories) _files -/ ;;
      *[=.]) unfinished+=("$word") ;;
      *) candidates+=("${word//:/\\:}${${line#*$tab}:+:${line#*$tab}}") ;;
    esac
  done
  (( ${#candidates} )) && _describe longhand candidates
  (( ${#unfinished} )) && compadd -S '' -- $unfinished
  return 0
}
if [[ $funcstack[1] == _longhand ]]; then _longhand "$@"; else compdef _longhand longhand; fi
)";

constexpr const char* fish =
    R"(# Completion of longhand in fish, written by: longhand completion fish
function __longhand_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] completion -- $words[2..-1] "$word" 2> /dev/null)
        switch $line
            case ':files*'
                __fish_complete_path $word
            case ':directories*'
                __fish_complete_directories $word
            case '*'
                echo $line
        end
    end
end
complete -c longhand -f -a '(__longhand_complete)'
)";

const std::map<std::string, const char*> scripts = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

/// Whether a file is a script of this or another version, and nothing else.
bool is_script(const std::filesystem::path& file) {
  const std::string text = data::read_text_file(file), mark = "written by: longhand completion";
  return text.find(mark) == text.rfind(mark) &&
         std::any_of(scripts.begin(), scripts.end(), [&](const auto& each) {
           const std::string_view script = each.second;
           const size_t last = script.rfind('\n', script.size() - 2) + 1;
           return text.starts_with(script.substr(0, script.find('\n') + 1)) &&
                  text.ends_with(script.substr(last)) && text.find(mark) != std::string::npos;
         });
}

struct Arguments : Common {
  std::string shell;
};

int completion(const Arguments& a) {
  const auto script = scripts.find(a.shell);
  check<ConfigError>(script != scripts.end(), "completion: there is no script for ", a.shell,
                     "; expected bash, zsh or fish");
  write_or_print(a.out, script->second);
  return success;
}

}  // namespace

void add_completion(Command& program) {
  auto [c, a] = program.command<Arguments>("completion", completion);
  c.add("shell", a->shell, "SHELL", "bash, zsh or fish").required();
  c.out(a->out, "FILE", "Write to a file [print]", is_script);
}

}  // namespace longhand::cli
