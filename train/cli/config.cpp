// longhand config dump: every option of a configuration with its value.
#include "longhand/train/config.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "longhand/core/error.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/experiment.h"
#include "longhand/train/reference.h"

namespace longhand::cli {

int dump_config(const ConfigArguments& arguments) {
  train::Config config = train::Config::load(arguments.config);
  apply(arguments, config);
  train::check_config(config);
  std::optional<data::TaskInfo> task = train::read_task_info(config);
  try {
    if (!task) task = train::read_task(config).info;
  } catch (const DataError& error) {
    // A configuration can be looked at where its data is not. What depends on the data is unknown.
    if (!arguments.quiet)
      fmt::print(stderr, "longhand: {}; defaults that depend on the data are left out\n",
                 error.what());
  }
  const std::string text = train::effective_config(config, task ? &*task : nullptr);
  fmt::print("{}", arguments.comments ? train::with_comments(text) : text);
  report_ignored(config, arguments.quiet);
  return success;
}

}  // namespace longhand::cli
