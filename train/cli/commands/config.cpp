// longhand config: prints configurations, and starts new ones.
#include "longhand/attention/registry.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/config/reference.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string config;
  bool comments = false;
  std::string task, variant = "softmax";
};

/// What the data requires of a model. Nothing, with a message, if it cannot be read: a configuration can
/// be printed without its data.
std::optional<data::TaskInfo> read_task(const train::Config& config, bool quiet) {
  train::check_config(config);
  std::optional<data::TaskInfo> task = train::read_task_info(config);
  try {
    if (!task) task = train::read_task(config).info;
  } catch (const DataError& error) {
    if (!quiet)
      print_stderr("longhand: {}; defaults that depend on the data are omitted\n", error.what());
  }
  return task;
}

int dump(const Arguments& arguments) {
  train::Config config = train::Config::load(arguments.config);
  apply(arguments, config);
  const std::optional<data::TaskInfo> task = read_task(config, arguments.quiet);
  std::vector<std::string> ignored;
  const std::string text = train::effective_config(config, task ? &*task : nullptr, &ignored);
  print_stdout("{}", arguments.comments ? train::commented_toml(text) : text);
  report_ignored(ignored, arguments.quiet);
  return success;
}

/// The command line that repeats a call of config init.
std::string call_of(const Arguments& a) {
  return "longhand config init " + a.task + " " + a.variant + set_flags(a);
}

int init(const Arguments& arguments) {
  const bool causal_only = attention::capabilities(arguments.variant).causal_only;
  train::Config config;
  // With these, small models train well on most tasks.
  for (const char* const assignment :
       {"optimizer.schedule=cosine", "optimizer.lr=0.002", "optimizer.warmup_steps=50",
        "optimizer.decay=matrices", "train.clip_norm=1.0"})
    config.assign(assignment);
  config.assign("data", "task", arguments.task, "TASK");
  config.assign("attention", "type", arguments.variant, "VARIANT");
  if (causal_only) config.assign("model", "causal", true, "VARIANT");
  apply(arguments, config);
  std::optional<data::TaskInfo> task;
  try {
    task = read_task(config, arguments.quiet);
  } catch (const ConfigError& error) {
    const bool needs_path = std::string(error.what()).starts_with("data.path = \"\"");
    throw ConfigError(std::string(error.what()) +
                      (needs_path ? ": " + call_of(arguments) + " --set data.path=PATH" : ""));
  }
  const std::string name = arguments.out.empty() ? "FILE.toml" : arguments.out;
  const std::string text =
      fmt::format(
          "# {} with {} attention. Written by: {}\n"
          "# Train with:        longhand train {} --out runs/{}\n"
          "# About an option:   longhand help SECTION.NAME\n"
          "# Options that begin with # follow from others or from the data, or do not apply; to "
          "set "
          "one, remove the #.\n\n",
          arguments.task, arguments.variant, call_of(arguments), shell_word(name),
          arguments.variant) +
      train::commented_toml(train::effective_config(config, task ? &*task : nullptr), &config);
  write_or_print(arguments.out, text);
  if (!arguments.out.empty() && !arguments.quiet)
    print_stdout_if_possible("written to {}; train with: longhand train {} --out runs/{}\n", name,
                             shell_word(name), arguments.variant);
  return success;
}

}  // namespace

void add_config(Command& program) {
  Command group = program.group("config");
  auto [c, a] = group.command<Arguments>("dump", dump);
  c.add("config", a->config).required();
  c.flag("--comments", a->comments);
  c.common(*a, "set seed threads quiet words");

  auto [start, b] = group.command<Arguments>("init", init);
  start.add("task", b->task).required();
  start.add("variant", b->variant);
  // A file that was written may have been edited.
  start.out(b->out, [](const auto&) { return false; });
  start.common(*b, "set seed threads quiet words");
}

}  // namespace longhand::cli
