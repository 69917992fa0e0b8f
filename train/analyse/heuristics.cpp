// Implements longhand analyse heuristics.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "longhand/autograd/grad_mode.h"
#include "longhand/train/analyse/analyse.h"
#include "longhand/train/step/metrics.h"

namespace longhand::train::analyse {
namespace {

/// Whether a model answers each target correctly.
data::Scores scores_of(longhand::attention::Transformer& model, int64_t batch_size) {
  return [logits = logits_of(model), batch_size](const data::Batch& batch) {
    const NoGrad no_grad;
    std::vector<double> out;
    for (int64_t begin = 0; begin < batch.tokens.size(0); begin += batch_size) {
      const int64_t end = std::min(batch.tokens.size(0), begin + batch_size);
      const Prediction p = logits(batch.examples(begin, end), nn::Pass::evaluate());
      std::vector<TargetScore> scores;
      measure(p.logits.value(), p.targets, &scores);
      for (const TargetScore& score : scores) out.push_back(score.correct);
    }
    return out;
  };
}

/// Sorts ranges by number, other groups by name.
std::vector<std::string> in_order(const std::map<std::string, data::Accuracy>& groups) {
  std::vector<std::string> out;
  for (const auto& [name, accuracy] : groups) out.push_back(name);
  std::ranges::stable_sort(
      out, {}, [](const std::string& name) { return std::strtol(name.c_str(), nullptr, 10); });
  return out;
}

}  // namespace

Results heuristics(data::HeuristicOptions a, const data::Task& task, Experiment* model,
                   const OnProgress& on_progress) {
  Table table{
      "heuristics", fmt::format("Accuracy of heuristics: {}, {} split", task.info.name, a.split),
      "Each is learned from the training split and looks at one property only. A model that is "
      "not better has not learned more than that. 95 % intervals (Wilson)."};
  Table groups{"groups", "Accuracy by group"};
  a.on_progress = [&](int64_t done, int64_t of) { on_progress(done, of, ""); };
  std::vector<data::Heuristic> all = data::heuristics(task, a);
  if (model)
    all.push_back(
        {model->model.config().attention_name() + " model", "everything",
         data::accuracies(task.info, task.split(a.split),
                          scores_of(model->model, model->options.eval_batch_size), a.limit)});
  for (const auto& [name, reads, found] : all)
    add_row(table, {{"predictor", name},
                    {"reads", reads},
                    {"targets", found.all.targets},
                    {"accuracy", found.all.value(), "accuracy"}});
  for (const auto& [by, first] : all[0].accuracies.by_group)
    for (const std::string& group : in_order(first))
      for (const auto& [name, reads, found] : all) {
        const data::Accuracy& of = found.by_group.at(by).at(group);
        add_row(groups, {{"by", by},
                         {"group", group},
                         {"predictor", name},
                         {"targets", of.targets},
                         {"accuracy", of.value(), "accuracy"}});
      }
  add_bars(table, "Accuracy", "predictor", "accuracy");
  add_bars(groups, "Accuracy by group", "group", "accuracy", {"predictor", "by"});
  const auto mean = [](const data::Heuristic& each) { return each.accuracies.all.value().mean; };
  const auto best =
      std::ranges::max_element(all.begin(), model ? all.end() - 1 : all.end(), {}, mean);
  return {.title = "Heuristics of " + task.info.name,
          .summary = fmt::format(
              "The best heuristic, {}, answers {:.1f} % of the targets{}.", best->name,
              100 * mean(*best),
              model ? fmt::format("; the model answers {:.1f} %", 100 * mean(all.back())) : ""),
          .tables = {table, groups}};
}

}  // namespace longhand::train::analyse
