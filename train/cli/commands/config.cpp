// longhand config: prints configurations, and starts new ones.
#include "longhand/attention/registry.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/config/reference.h"
#include "longhand/train/config/sections.h"

namespace longhand::cli {
namespace {

struct ConfigArguments : Common {
  std::string config;
  bool comments = false;
  std::string task, variant = "softmax";
};

/// Returns what the data requires of a model. Nothing, with a message, if the data cannot be read:
/// a configuration can be printed without it.
std::optional<data::TaskInfo> read_task(const train::Config& config, bool quiet) {
  train::check_config(config);
  std::optional<data::TaskInfo> task = train::read_task_info(config);
  try {
    const Waiting waiting(quiet, "reading data");
    if (!task) task = train::read_task(config).info;
  } catch (const DataError& error) {
    if (!quiet)
      print_stderr("longhand: {}; defaults that depend on the data are omitted\n", error.what());
  }
  return task;
}

int dump(const ConfigArguments& arguments) {
  train::Config config = train::Config::load(arguments.config);
  apply(arguments, config);
  const std::optional<data::TaskInfo> task = read_task(config, arguments.quiet);
  std::vector<std::string> ignored;
  const std::string text = train::effective_config(config, task ? &*task : nullptr, &ignored);
  print_stdout("{}", arguments.comments ? train::commented_toml(text) : text);
  report_ignored(ignored, arguments.quiet);
  return success;
}

/// Returns the command line that repeats a call of config init.
std::string call_of(const ConfigArguments& a) {
  return "longhand config init " + a.task + " " + a.variant + set_flags(a);
}

/// Returns whether the first examples of a split represent all of it: files may be sorted by class,
/// and a mixture begins with its first segment.
bool first_are_typical(const Options& data, const std::optional<data::TaskInfo>& task) {
  const auto is_list = [&](const std::string& key) {
    return std::holds_alternative<std::vector<int64_t>>(data.find(key)->value);
  };
  const bool is_text = task && task->bytes && task->per_token;
  return (is_text || !data.has("path")) && std::ranges::none_of(data.keys(), is_list);
}

/// Validation batches per evaluation, so that evaluations take about 1 % of a run: a batch takes
/// about a third of a step, and there is one per 40 steps.
int64_t batches_of_an_evaluation(const train::TrainSection& train) {
  if (train.trainer.eval_every == 0) return 0;  // one evaluation, of all batches
  const int64_t batch = train.trainer.eval_batch_size;
  const int64_t examples = train.trainer.eval_every * train.loading.batch_size / 40;
  return std::max<int64_t>((examples + batch - 1) / batch, 1);
}

int init(const ConfigArguments& arguments) {
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
  if (!config.train().has("eval_batches") && first_are_typical(config.data(), task)) {
    const auto section = read_section<train::TrainSection>(config.train());
    config.assign("train", "eval_batches", batches_of_an_evaluation(section), "VARIANT");
  }
  const auto chosen = [](const Options& section, const std::string& key) {
    const OptionValue& value = section.find(key)->value;
    const auto* const word = std::get_if<std::string>(&value);
    return word ? *word : to_string(value);
  };
  const std::string variant = chosen(config.attention(), "type");
  const std::string folder = shell_word("runs/" + variant);
  const std::string name = arguments.out.empty() ? "FILE.toml" : arguments.out;
  const std::string text =
      fmt::format(
          "# {} with {} attention. Written by: {}\n"
          "# Train with:        longhand train {} --out {}\n"
          "# About an option:   longhand help SECTION.NAME\n"
          "# Options that begin with # follow from others or from the data, or do not apply; to "
          "set one, remove the #.\n\n",
          chosen(config.data(), "task"), variant, call_of(arguments), shell_word(name), folder) +
      train::commented_toml(train::effective_config(config, task ? &*task : nullptr), &config);
  write_or_print(arguments.out, text);
  if (!arguments.out.empty() && !arguments.quiet)
    print_stdout_if_possible("written to {}; train with: longhand train {} --out {}\n", name,
                             shell_word(name), folder);
  return success;
}

}  // namespace

void add_config(Command& program) {
  auto [c, a] = program.command<ConfigArguments>("config dump", dump);
  c.add("config", a->config).required();
  c.flag("--comments", a->comments);
  c.common(*a, "set seed threads quiet words");

  auto [start, b] = program.command<ConfigArguments>("config init", init);
  start.add("task", b->task).required();
  start.add("variant", b->variant);
  start.out(b->out, nullptr);
  start.common(*b, "set seed threads quiet words");
}

}  // namespace longhand::cli
