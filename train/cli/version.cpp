// longhand --version
#include "longhand/core/version.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "longhand/core/parallel.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/cli/common.h"

namespace longhand::cli {

int print_version(bool json) {
  const std::string compiler =
      fmt::format("{} {}.{}.{}",
#ifdef __clang__
                  "clang", __clang_major__, __clang_minor__, __clang_patchlevel__
#else
                  "gcc", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__
#endif
      );
  if (json) {
    print_json({{"version", version()},
                {"compiler", compiler},
                {"machine", train::machine_description()},
                {"threads", threads()}});
  } else {
    fmt::print("longhand {}\n{}; {}; {} threads\n", version(), compiler,
               train::machine_description(), threads());
  }
  return success;
}

}  // namespace longhand::cli
