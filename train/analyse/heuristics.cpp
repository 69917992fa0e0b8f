// What longhand analyse heuristics computes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "longhand/autograd/grad_mode.h"
#include "longhand/data/heuristics.h"
#include "longhand/train/analyse/analyse.h"
#include "longhand/train/step/metrics.h"

namespace longhand::train::analyse {
namespace {

using data::Accuracies;

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

/// Ranges in the order of their numbers, other groups by name.
std::vector<std::pair<std::string, data::Accuracy>> in_order(
    const std::map<std::string, data::Accuracy>& groups) {
  std::vector<std::pair<std::string, data::Accuracy>> out(groups.begin(), groups.end());
  const auto number = [](const std::string& name) {
    return std::strtol(name.c_str(), nullptr, 10);
  };
  std::ranges::stable_sort(
      out, [&](const auto& a, const auto& b) { return number(a.first) < number(b.first); });
  return out;
}

}  // namespace

Results heuristics(const HeuristicsOptions& a, const data::Task& task, Experiment* model,
                   const OnProgress& on_progress) {
  Table table{
      "heuristics", fmt::format("Accuracy of heuristics: {}, {} split", task.info.name, a.split),
      "Each is learned from the training split and looks at one property only. A model that is "
      "not better has not learned more than that. 95 % intervals (Wilson)."};
  Table groups{"groups",
               "Accuracy by group",
               "",
               {{"by", ""}, {"group", ""}, {"predictor", ""}, {"targets", ""}}};
  add_estimate(groups.columns, "accuracy", "accuracy");
  std::vector<std::pair<std::string, Accuracies>> all;
  const auto add = [&](const std::string& name, const std::string& reads, const Accuracies& found) {
    add_row(table, {{"predictor", name},
                    {"reads", reads},
                    {"targets", found.all.targets},
                    {"accuracy", found.all.value(), "accuracy"}});
    all.emplace_back(name, found);
  };
  for (const data::Heuristic& each : data::heuristics(
           task, {.split = a.split,
                 .train_limit = a.train_limit,
                 .limit = a.limit,
                 .on_progress = [&](int64_t done, int64_t of) { on_progress(done, of, ""); }}))
    add(each.name, each.reads, each.accuracies);
  if (model)
    add(model->model.config().attention_name() + " model", "everything",
        data::accuracies(task.info, task.split(a.split),
                         scores_of(model->model, model->options.eval_batch_size), a.limit));
  for (const auto& [by, first] : all[0].second.by_group)
    for (const auto& [group, accuracy] : in_order(first))
      for (const auto& [name, found] : all) {
        const data::Accuracy& of = found.by_group.at(by).at(group);
        groups.rows.push_back({by, group, name, of.targets});
        add_estimate(groups.rows.back(), of.value());
      }
  add_bars(table, "Accuracy", "predictor", "accuracy");
  add_bars(groups, "Accuracy by group", "group", "accuracy", {"predictor", "by"});
  const auto mean = [](const auto& each) { return each.second.all.value().mean; };
  const auto best =
      std::ranges::max_element(all.begin(), model ? all.end() - 1 : all.end(), {}, mean);
  return {.title = "Heuristics of " + task.info.name,
          .summary = fmt::format(
              "The best heuristic, {}, answers {:.1f} % of the targets{}.", best->first,
              100 * mean(*best),
              model ? fmt::format("; the model answers {:.1f} %", 100 * mean(all.back())) : ""),
          .tables = {table, groups}};
}

}  // namespace longhand::train::analyse
