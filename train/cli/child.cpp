#include "longhand/train/cli/child.h"

#include <fmt/format.h>

#include <csignal>

#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output.h"
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

}  // namespace longhand::cli
