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

}  // namespace

void add_completion(Command& program) {
  auto [c, a] = program.command<CompletionArguments>("completion", completion);
  c.add("shell", a->shell).required();
  c.out(a->out, is_script);
}

}  // namespace longhand::cli
