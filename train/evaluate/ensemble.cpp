#include "longhand/train/evaluate/ensemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/evaluate/scores.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {
namespace {

std::string text_of(const Options& section, const std::string& key) {
  const Options::Given* const given = section.find(key);
  return given ? to_string(given->value) : "no value";
}

/// Throws ConfigError unless both runs have the same data, and gives the second one the first one's
/// seed.
void match_data(const SavedModel& first, SavedModel& other) {
  const Options &a = first.config.data(), &b = other.config.data();
  const auto require = [&](const std::string& key) {
    check<ConfigError>(text_of(a, key) == text_of(b, key), other.file, ": data.", key, " is ",
                       text_of(b, key), ", but ", text_of(a, key), " in ", first.file,
                       ": members of an ensemble need the same data; --set data.", key,
                       "=... sets it for all");
  };
  require("task");
  std::vector<std::string> keys = a.keys();
  for (const std::string& key : b.keys())
    if (!a.has(key)) keys.push_back(key);
  // With random splits of a file, one run's test examples may be another's training examples.
  const bool generated = !a.has("path") && !b.has("path");
  // Options of another task, replaced by --set.
  const auto is_unused = [&](const std::string& key) {
    return (!a.has(key) || a.is_optional(key)) && (!b.has(key) || b.is_optional(key));
  };
  for (const std::string& key : keys)
    if ((key != "seed" || !generated) && !is_unused(key)) require(key);
  if (const Options::Given* const seed = a.find("seed"); seed && generated)
    other.config.assign("data", "seed", seed->value, first.file);
}

struct Member {
  std::string label, attention;
  std::optional<int64_t> seed{};
  std::unique_ptr<attention::Transformer> model{};
};

std::vector<Member> members_of(const SavedModel& run, const data::Task& task,
                               const EnsembleOptions& options) {
  const attention::TransformerConfig config =
      with_file_name<ConfigError>(run.file, [&] { return read_plan(run.config, task.info).model; });
  std::vector<std::optional<int64_t>> seeds(options.seeds.begin(), options.seeds.end());
  if (seeds.empty()) seeds.emplace_back();
  std::vector<Member> out;
  for (const auto& seed : seeds) {
    Member& member = out.emplace_back();
    member.label = seed ? fmt::format("{}, draw {}", run.file, *seed) : run.file;
    member.attention = config.attention_name();
    member.seed = seed;
    member.model = std::make_unique<attention::Transformer>(
        seed ? scope_of_draw(*seed) : nn::root(DType::f32, read_seed(run.config)), config);
    const Fresh fresh = load_weights(
        *member.model, run,
        {.other_attention = changes_attention(options.set), .new_draws = seed.has_value()});
    check<ConfigError>(!seed || !fresh.drawn.empty() || !fresh.initialised.empty(), run.file,
                       ": its attention, ", member.attention,
                       ", has no random numbers, so that all draws are the same");
  }
  return out;
}

void check_outputs(const SavedModel& first, const Member& a, const SavedModel& run,
                   const Member& b) {
  const attention::TransformerConfig &x = a.model->config(), &y = b.model->config();
  check<ConfigError>(x.targets == "classes" && y.targets == "classes", run.file,
                     ": members of an ensemble predict classes, but these targets are ",
                     x.targets == "classes" ? y.targets : x.targets,
                     "; evaluate one run at a time");
  check<ConfigError>(x.classes == y.classes && x.per_token == y.per_token, run.file, ": ",
                     y.classes, " classes of ", y.per_token ? "tokens" : "sequences", ", but ",
                     x.classes, " of ", x.per_token ? "tokens" : "sequences", " in ", first.file,
                     ": members of an ensemble need the same classes");
}

/// Returns the ensemble's scores compared with the mean of its members' scores.
ScoreDifference gain_of(const SegmentScores& scores) {
  std::vector<ExampleScores> members;
  for (const Scores& member : scores.members) members.push_back(member.examples);
  return difference(scores.ensemble->examples, mean(members));
}

/// Adds rows for the members, their mean, the ensemble and its gain.
void add_rows(const std::vector<Member>& members, const SegmentScores& scores,
              const RowField& first, Table& table) {
  const auto add = [&](const std::string& label, const std::string& attention, Cell draw,
                       const Estimate& loss, const Estimate& accuracy, const char* interval) {
    add_row(table, {first,
                    {"model", label},
                    {"attention", attention},
                    {"draw", std::move(draw)},
                    {"loss", loss, "loss"},
                    {"accuracy", accuracy, "accuracy"},
                    {"interval", interval}});
  };
  std::vector<double> losses, accuracies;
  for (size_t k = 0; k < members.size(); ++k) {
    const Scores& own = scores.members[k];
    losses.push_back(own.metrics.loss());
    accuracies.push_back(own.metrics.accuracy());
    add(members[k].label, members[k].attention, members[k].seed ? Cell{*members[k].seed} : Cell{},
        loss_of(own.examples), accuracy_of(own.examples), "over examples");
  }
  if (!scores.ensemble) return;
  const ExampleScores& ensemble = scores.ensemble->examples;
  add("mean of members", "", {}, estimate(losses), accuracy_of_seeds(accuracies), "over members");
  add("ensemble", "", {}, loss_of(ensemble), accuracy_of(ensemble), "over examples");
  const ScoreDifference gain = gain_of(scores);
  add("ensemble - mean of members", "", {}, gain.loss, gain.accuracy, "over examples");
  const size_t best = static_cast<size_t>(std::ranges::min_element(losses) - losses.begin());
  const ScoreDifference over_best = difference(ensemble, scores.members[best].examples);
  add("ensemble - " + members[best].label, "", {}, over_best.loss, over_best.accuracy,
      "over examples");
}

std::string summary_of(const SegmentScores& all) {
  if (!all.ensemble) return "";
  const ScoreDifference gain = gain_of(all);
  return fmt::format(
      "The ensemble of {} has accuracy {:.4g} and loss {:.4g}: {:+.2g} and {:+.2g} compared with "
      "the mean of its members.",
      all.members.size(), all.ensemble->metrics.accuracy(), all.ensemble->metrics.loss(),
      gain.accuracy.mean, gain.loss.mean);
}

}  // namespace

nn::Scope scope_of_draw(int64_t seed) {
  return {nullptr, "", DType::f32, Generator(static_cast<uint64_t>(seed)).fork("draw")};
}

Results evaluate_ensemble(std::vector<SavedModel> runs, const EnsembleOptions& options) {
  check<ConfigError>(!runs.empty(), "ensemble: expected at least one run");
  const SavedModel& first = runs.front();
  bool other_seeds = false;
  for (SavedModel& run : runs) {
    const std::string seed = text_of(run.config.data(), "seed");
    for (const std::string& assignment : options.set) run.config.assign(assignment);
    if (&run == &first) continue;
    match_data(first, run);
    other_seeds = other_seeds || text_of(run.config.data(), "seed") != seed;
  }
  for (const SavedModel& run : runs) check_config(run.config);
  const data::Task task = read_task(first.config, data::Splits::only(options.split));
  for (const SavedModel& run : runs) run.check_data(task, run.config);
  std::vector<Member> members;
  for (const SavedModel& run : runs) {
    std::vector<Member> own = members_of(run, task, options);
    if (!members.empty()) check_outputs(first, members.front(), run, own.front());
    std::move(own.begin(), own.end(), std::back_inserter(members));
  }
  std::vector<LogitsFn> logits;
  for (const Member& member : members) logits.push_back(logits_of(*member.model));
  const int64_t batch = read_section<TrainSection>(first.config.train()).trainer.eval_batch_size;
  const std::vector<SegmentScores> segments = *evaluate_members(
      logits, task.split(options.split),
      {.batch_size = batch, .limit = options.limit, .on_progress = [&](const auto& p) {
         if (options.on_progress) options.on_progress(p.examples, p.all_examples);
       }});
  const SegmentScores all = total(segments);

  Results results{.kind = "evaluate",
                  .title = fmt::format("Ensemble of {}", members.size()),
                  .summary = summary_of(all)};
  Table table{.name = "ensemble",
              .title = fmt::format("Ensemble on {}, {}: {} examples", task.info.name, options.split,
                                   all.members.front().metrics.examples)};
  table.note =
      "The ensemble predicts with the mean of its members' probabilities, p = 1/K Σ "
      "softmax(logits); its loss is -log p(target). 95 % intervals over examples are Student's for "
      "the loss and for differences, which are paired by example, and Wilson's for the accuracy; "
      "over members they are Student's.";
  if (other_seeds)
    table.note += " The data are those of " + first.file +
                  "; other members were trained on data from other seeds.";
  add_rows(members, all, {}, table);
  results.tables.push_back(std::move(table));
  if (segments.size() > 1) {
    Table parts{.name = "segments", .title = "Segments of the mixture, one by one"};
    for (const SegmentScores& segment : segments)
      add_rows(members, segment, {"segment", segment.name}, parts);
    results.tables.push_back(std::move(parts));
  }
  return results;
}

}  // namespace longhand::train
