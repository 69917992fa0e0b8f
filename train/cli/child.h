// Measurements in processes of their own, so that the peak of memory is theirs alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace longhand::cli {

/// Runs this program with the given arguments and returns its standard output; nothing if it failed,
/// with its exit code in `code` and the reason on stderr. `what` names it in messages.
std::optional<std::string> run_program_with(const std::vector<std::string>& arguments,
                                            const std::string& what, int& code);

}  // namespace longhand::cli
