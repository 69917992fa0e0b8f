#include "longhand/train/cli/child.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "longhand/core/error.h"
#include "longhand/data/file_guard.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/plugins.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/run/child.h"

namespace longhand::cli {

std::optional<std::string> run_program_with(const std::vector<std::string>& arguments,
                                            const std::string& what, int& code) {
  train::Child child({.arguments = arguments, .capture = true});
  std::string text = child.output();
  const train::Ended ended = child.wait();
  code = ended.signal == 0 ? ended.code : failure;
  if (ended.signal != 0)
    print_stderr("longhand: {}: ended by signal {}{}\n", what, ended.signal,
                 ended.signal == SIGKILL ? " (memory?)" : "");
  if (code != success) return std::nullopt;
  return text;
}

std::string read_file_in_child(const std::filesystem::path& path, bool json) {
  std::vector<std::string> arguments{"data", "check", "hdf5", "--in-process",
                                     std::filesystem::absolute(path).string()};
  if (json) arguments.push_back("--json");
  // It needs no plugins, and is no rank.
  std::vector<std::string> without = rank_variables();
  without.push_back(plugins_variable);
  train::Child child(
      {.arguments = arguments, .err = "/dev/null", .capture = true, .without = without});
  std::string output = child.output();
  const train::Ended ended = child.wait();
  if (ended.signal == 0 && ended.code == success) return output;
  const std::string reason = ended.signal == SIGXCPU ? "took too long"
                             : ended.signal != 0
                                 ? fmt::format("was ended by signal {}", ended.signal)
                                 : fmt::format("ended with code {}", ended.code);
  throw DataError(concat_message(
      path.string(), ": a process that read it with libhdf5 ", reason,
      ": the file is damaged or malicious, or memory is too short; to see it happen: longhand data "
      "check hdf5 --in-process ",
      shell_word(path.string())));
}

void read_files_in_child_first() {
  data::set_file_guard(
      [](const std::filesystem::path& path) { read_file_in_child(path, /*json=*/false); });
}

}  // namespace longhand::cli
