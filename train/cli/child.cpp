#include "longhand/train/cli/child.h"

#include <fmt/format.h>

#include <csignal>

#include "longhand/core/error.h"
#include "longhand/data/file_guard.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/plugins.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/run/child.h"

namespace longhand::cli {

std::string read_file_in_child(const data::RegularFile& file, bool json) {
  const std::filesystem::path& path = file.path();
  std::vector<std::string> arguments{
      "data", "check", "hdf5", "--in-process", "--stdin", std::filesystem::absolute(path).string()};
  if (json) arguments.push_back("--json");
  // It needs no plugins, is not a rank, and multiplies no matrices.
  std::vector<std::string> without = rank_variables();
  without.insert(without.end(), {plugins_variable, "OPENBLAS_NUM_THREADS"});
  // The process limits its own processor time; this one kills it if it waits instead.
  const double seconds = 60 + 10 * static_cast<double>(file.size()) / (1 << 20);
  train::Child child({.arguments = arguments,
                      .err = "/dev/null",
                      .in = file.descriptor(),
                      .capture = true,
                      .without = without,
                      .with = {"OPENBLAS_NUM_THREADS=1"},
                      .most_seconds = seconds});
  std::string output = child.output();
  const train::Ended ended = child.wait();
  if (ended.signal == 0 && ended.code == success) return output;
  check(ended.signal != 0 || (ended.code != 126 && ended.code != 127), path.string(),
        ": cannot be read, because the process that reads it first cannot be started: ",
        train::own_program().string(), " is missing or may not be executed");
  const std::string reason = ended.signal == SIGXCPU || ended.timed_out ? "took too long"
                             : ended.signal != 0
                                 ? fmt::format("was ended by signal {}", ended.signal)
                                 : fmt::format("ended with code {}", ended.code);
  throw DataError(concat_message(
      path.string(), ": a process that read it with libhdf5 ", reason,
      ": the file is damaged or malicious, or memory ran out; to see it happen: longhand data "
      "check hdf5 --in-process ",
      shell_word(path.string())));
}

void read_files_in_child_first() {
  data::set_file_guard(
      [](const data::RegularFile& file) { read_file_in_child(file, /*json=*/false); });
}

}  // namespace longhand::cli
