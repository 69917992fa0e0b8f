// longhand config dump: every option of a configuration with its value.
#include "longhand/train/config.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "longhand/core/error.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/experiment.h"
#include "longhand/train/reference.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string config;
  bool comments = false;
};

int dump(const Arguments& arguments) {
  train::Config config = train::Config::load(arguments.config);
  apply(arguments, config);
  train::check_config(config);
  std::optional<data::TaskInfo> task = train::read_task_info(config);
  try {
    if (!task) task = train::read_task(config).info;
  } catch (const DataError& error) {
    // A configuration can be printed without its data; values that depend on the data are unknown then.
    if (!arguments.quiet)
      print_stderr("longhand: {}; defaults that depend on the data are omitted\n", error.what());
  }
  std::vector<std::string> ignored;
  const std::string text = train::effective_config(config, task ? &*task : nullptr, &ignored);
  print_stdout("{}", arguments.comments ? train::with_comments(text) : text);
  report_ignored(ignored, arguments.quiet);
  return success;
}

}  // namespace

void add_config(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command group = program.group("config", "Print configurations");
  Command c = group.command("dump", "Print every option of a configuration with its value",
                            [a] { return dump(*a); });
  c.add("config", a->config, "CONFIG.toml", "A configuration").required();
  c.flag("--comments", a->comments, "Add the meaning of each option as a comment");
  c.set(*a);
  c.seed(*a);
  c.threads();
  c.quiet(*a);
  c.words_to_set(*a);
}

}  // namespace longhand::cli
