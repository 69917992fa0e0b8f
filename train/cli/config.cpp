// longhand config dump: every option of a configuration with its value.
#include "longhand/train/config.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "longhand/core/error.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/experiment.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string config;
};

int dump(const Arguments& arguments) {
  train::Config config = train::Config::load(arguments.config);
  apply(arguments, config);
  // To read options, a task has to be made; it need not be a large one.
  for (const char* key : {"train_size", "validation_size", "test_size"})
    config.data().substitute(key, int64_t{1});
  try {
    const train::Experiment experiment(config);
    report_ignored(config, arguments.quiet);
    fmt::print("{}", config.to_toml());
  } catch (const DataError& error) {
    // A configuration can be looked at where its data is not. What depends on the data is unknown.
    fmt::print("{}", config.to_toml(true));
    if (!arguments.quiet)
      fmt::print(stderr, "longhand: {}; defaults that depend on the data are left out\n",
                 error.what());
  }
  return success;
}

}  // namespace

void add_config(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command group = program.group("config", "Look at configurations");
  Command c = group.command("dump", "Print every option of a configuration with its value",
                            [a] { return dump(*a); });
  c.add("config", a->config, "CONFIG.toml", "A configuration").required();
  c.set(*a);
  c.seed(*a);
  c.threads();
  c.quiet(*a);
  c.words_to_set(*a);
}

}  // namespace longhand::cli
