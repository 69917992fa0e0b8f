// longhand analyse heuristics: what a task can be answered with without reading it whole.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "longhand/autograd/grad_mode.h"
#include "longhand/data/heuristics.h"
#include "longhand/train/cli/analyse.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/step/metrics.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

using data::Accuracies;
using train::Table;

struct Arguments : SourceArguments {
  std::string task;
  int64_t train_limit = 0, limit = 0;
};

/// Whether a model answers each target correctly.
data::Scores scores_of(attention::Transformer& model, int64_t batch_size) {
  return [logits = train::logits_of(model), batch_size](const data::Batch& batch) {
    const NoGrad no_grad;
    std::vector<double> out;
    for (int64_t begin = 0; begin < batch.tokens.size(0); begin += batch_size) {
      const int64_t end = std::min(batch.tokens.size(0), begin + batch_size);
      const auto part = [&](const Tensor& t) {
        return t.defined() ? t.slice(0, begin, end).contiguous() : t;
      };
      const train::Prediction p = logits(
          {part(batch.tokens), part(batch.targets), part(batch.lengths)}, nn::Pass::evaluate());
      const int64_t classes = p.logits.size(-1);
      const auto values = p.logits.value().to_vector<double>();
      const auto targets = p.targets.to_vector<int32_t>();
      for (size_t i = 0; i < targets.size(); ++i) {
        if (targets[i] == data::ignore_index) continue;
        const auto row = values.begin() + static_cast<std::ptrdiff_t>(i) * classes;
        out.push_back(std::max_element(row, row + classes) - row == targets[i]);
      }
    }
    return out;
  };
}

/// Ranges in the order of their numbers, other groups by name.
std::vector<std::pair<std::string, data::Accuracy>> in_order(
    const std::map<std::string, data::Accuracy>& groups) {
  std::vector<std::pair<std::string, data::Accuracy>> out(groups.begin(), groups.end());
  const auto number = [](const std::string& name) {
    return std::strtol(name.c_str(), nullptr, 10);
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const auto& a, const auto& b) { return number(a.first) < number(b.first); });
  return out;
}

int analyse(const Arguments& a) {
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
  Table table{
      "heuristics",
      fmt::format("Accuracy of heuristics: {}, {} split", task.info.name, a.split),
      "Each is learned from the training split and looks at one property only. A model that is "
      "not better has not learned more than that. 95 % intervals (Wilson).",
      {{"predictor", ""}, {"reads", ""}, {"targets", ""}}};
  add_estimate(table.columns, "accuracy", "accuracy");
  Table groups{"groups",
               "Accuracy by group",
               "",
               {{"by", ""}, {"group", ""}, {"predictor", ""}, {"targets", ""}}};
  add_estimate(groups.columns, "accuracy", "accuracy");
  table.charts.push_back({"Accuracy",
                          "predictor",
                          "accuracy",
                          {},
                          "accuracy_low",
                          "accuracy_high",
                          false,
                          false,
                          true});
  groups.charts.push_back({"Accuracy by group",
                           "group",
                           "accuracy",
                           {"predictor", "by"},
                           "accuracy_low",
                           "accuracy_high",
                           false,
                           false,
                           true});
  std::vector<std::pair<std::string, Accuracies>> all;
  const auto add = [&](const std::string& name, const std::string& reads, const Accuracies& found) {
    table.rows.push_back({name, reads, found.all.targets});
    add_estimate(table.rows.back(), found.all.value());
    all.emplace_back(name, found);
  };
  Progress progress(a.progress(), "analyse heuristics", 2);
  for (const data::Heuristic& each : data::heuristics(
           task, {.split = a.split,
                 .train_limit = a.train_limit,
                 .limit = a.limit,
                 .on_progress = [&](int64_t done, int64_t of) { progress.update(done, of, ""); }}))
    add(each.name, each.reads, each.accuracies);
  if (saved) {
    const Waiting waiting(a.progress(), "evaluating the model");
    add(experiment->model.config().attention_name() + " model", "everything",
        data::accuracies(task.info, task.split(a.split),
                         scores_of(experiment->model, experiment->options.eval_batch_size),
                         a.limit));
  }
  progress.clear();
  for (const auto& [by, first] : all[0].second.by_group)
    for (const auto& [group, accuracy] : in_order(first))
      for (const auto& [name, found] : all) {
        const data::Accuracy& of = found.by_group.at(by).at(group);
        groups.rows.push_back({by, group, name, of.targets});
        add_estimate(groups.rows.back(), of.value());
      }
  const size_t heuristics = all.size() - (saved ? 1 : 0);
  const auto best = std::max_element(all.begin(), all.begin() + static_cast<int64_t>(heuristics),
                                     [](const auto& x, const auto& y) {
                                       return x.second.all.value().mean < y.second.all.value().mean;
                                     });
  train::Results results =
      new_results("Heuristics of " + task.info.name,
                  fmt::format("The best heuristic, {}, answers {:.1f} % of the targets{}.",
                              best->first, 100 * best->second.all.value().mean,
                              saved ? fmt::format("; the model answers {:.1f} %",
                                                  100 * all.back().second.all.value().mean)
                                    : ""));
  results.tables = {table, groups};
  return finish(a, results);
}

}  // namespace

void add_analyse_heuristics(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command("heuristics",
                            "Accuracy that a task gives away, by root operator, distance or length",
                            [a] { return analyse(*a); });
  c.add("task", a->task, "TASK", "Name of a task; longhand data tasks lists them");
  c.add("--run", a->run, "DIR", "The task of this run, with the accuracy of its model");
  c.trust_paths(*a);
  c.add("--checkpoint", a->checkpoint, "NAME", "best, last or another one of the run [best]");
  c.add("--split", a->split, "SPLIT", "train, validation or test [test]");
  c.add("--limit", a->limit, "N", "Answer the first N examples [all]").positive();
  c.add("--train-limit", a->train_limit, "N", "Learn from the first N examples [all]").positive();
  c.set(*a, "data.KEY=VALUE", "Set an option of the task; may be repeated");
  add_common(c, *a);
  c.words_to_set(*a);
}

}  // namespace longhand::cli
