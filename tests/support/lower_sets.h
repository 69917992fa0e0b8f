// Tests again on lower instruction sets: a process chooses one only once.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "longhand/core/simd.h"
#include "tests/support/catch.h"

namespace longhand::test {

/// Runs the tests of this program that a filter of Catch2 selects on each instruction set below the one in use.
inline void check_on_lower_sets(const std::string& filter) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const Isa lower : all_isas) {
    if (lower >= isa()) continue;
    const std::string command =
        concat_message("LONGHAND_ISA=", name_of(lower), " '", self, "' '", filter, "'");
    INFO(command);
    const int status = std::system((command + " > /dev/null").c_str());
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

}  // namespace longhand::test
