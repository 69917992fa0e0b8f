// longhand analyse heuristics.
#include "longhand/train/cli/commands/analyse.h"
#include "longhand/train/transfer/load_weights.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

struct Arguments : RunArguments {
  std::string task;
  analyse::HeuristicsOptions options;
};

int run(const Arguments& a) {
  train::Config config;
  std::optional<train::SavedModel> saved;
  if (!a.run.empty()) {
    saved = train::load_model(a.run, a.checkpoint);
    if (!a.trust_paths) saved->check_paths();
    config = saved->config;
    check<ConfigError>(a.task.empty() && a.set.empty() && !a.seed,
                       "--run: the task, its options and its seed are those of the run");
  } else {
    check<ConfigError>(!a.task.empty(), "analyse heuristics: expected a TASK or --run DIR");
    config.assign("data", "task", a.task, "TASK");
    apply_to_data(a, config);
  }
  data::Splits splits = data::Splits::only(a.split);
  splits.train = true;
  std::optional<train::Experiment> experiment;
  data::Task made;
  {
    const Waiting waiting(a.progress(), "preparing data");
    if (saved) {
      experiment.emplace(config, splits);
      train::load_weights(experiment->model, saved->checkpoint);
    } else {
      made = train::read_task(config, splits);
    }
  }
  const data::Task& task = saved ? experiment->task : made;
  analyse::HeuristicsOptions options = a.options;
  options.split = a.split;
  return finish(a, with_progress(a, [&](const auto& on_progress) {
                  return analyse::heuristics(options, task, experiment ? &*experiment : nullptr,
                                             on_progress);
                }));
}

}  // namespace

void add_analyse_heuristics(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command("heuristics",
                            "Accuracy that a task gives away, by root operator, distance or length",
                            [a] { return run(*a); });
  c.add("task", a->task, "TASK", "Name of a task; longhand data tasks lists them");
  c.add("--run", a->run, "DIR", "The task of this run, with the accuracy of its model");
  c.trust_paths(*a);
  c.add("--checkpoint", a->checkpoint, "NAME", "best, last or another one of the run [best]");
  c.add("--split", a->split, "SPLIT", "train, validation or test [test]");
  c.add("--limit", a->options.limit, "N", "Answer the first N examples [all]").positive();
  c.add("--train-limit", a->options.train_limit, "N", "Learn from the first N examples [all]")
      .positive();
  c.set(*a, "data.KEY=VALUE", "Set an option of the task; may be repeated");
  add_common(c, *a);
  c.words_to_set(*a);
}

}  // namespace longhand::cli
