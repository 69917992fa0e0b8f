#include "longhand/train/lab/drop_in.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/evaluate/ensemble.h"
#include "longhand/train/evaluate/scores.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {
namespace {

/// Returns the options of a configuration that `select` selects, as text.
template <class F>
std::string text_of(const Config& config, F select) {
  std::string text;
  for (const auto& [key, value] : config.given())
    if (select(key)) text += key + " = " + to_string(value) + "\n";
  return text;
}

/// Returns "kernel.projection" for the tensors of all layers.
std::string names_of_tensors(const std::vector<std::string>& tensors) {
  constexpr std::string_view part = ".attention.";
  std::set<std::string> names;
  for (const std::string& tensor : tensors) {
    const size_t at = tensor.find(part);
    names.insert(at == std::string::npos ? tensor : tensor.substr(at + part.size()));
  }
  return comma_list({names.begin(), names.end()});
}

/// A model to evaluate: the run's own on some data, or a variant.
struct Candidate {
  std::string label;
  const SweepVariant* variant = nullptr;  // null: as trained
  Config config;
  size_t data = 0;
  bool as_trained = false;  // the reference for candidates on the same data
  bool same = false;        // model and attention have the run's options
  attention::TransformerConfig model{};
  int64_t batch_size = 1;
  std::vector<int64_t> seeds{};  // empty: none has an effect, or none was requested
  Fresh fresh{};
  std::string algorithm{};
  // Its scores for all seeds.
  std::vector<Metrics> draws{};                                   // by seed; one without seeds
  ExampleScores examples{};                                       // means over seeds
  std::vector<std::pair<std::string, ExampleScores>> segments{};  // of a mixture
};

struct Data {
  std::string identity;
  Config config;            // of the model as trained, on this data
  bool is_in_grid = false;  // whether a variant is the model as trained
  data::Task task{};
};

class DropIn {
 public:
  DropIn(const SavedModel& run, Sweep sweep, const DropInOptions& options)
      : run_(run), options_(options), seeds_(std::move(sweep.seeds)) {
    sweep.seeds = {static_cast<int64_t>(read_seed(sweep.config()))};
    sweep.baseline.clear();
    grid_ = expand(sweep);
    add_candidates();
    for (Data& each : data_) {
      each.task = read_task(each.config, data::Splits::only(options_.split));
      run_.check_data(each.task, each.config);
    }
    for (Candidate& each : candidates_) prepare(each);
  }

  Results results() {
    for (const Candidate& each : candidates_)
      all_ += examples_of(each) * std::max<int64_t>(1, std::ssize(each.seeds));
    for (Candidate& each : candidates_) evaluate(each);
    Results out{.kind = "evaluate", .title = "Drop-in variants of " + run_.file};
    out.tables.push_back(variants_table());
    out.summary = summary();
    if (Table table = draws_table(); !table.rows.empty()) out.tables.push_back(std::move(table));
    if (Table table = segments_table(); !table.rows.empty()) out.tables.push_back(std::move(table));
    return out;
  }

 private:
  static std::string model_of(const Config& config) {
    return text_of(config, [](const std::string& key) {
      return key.starts_with("model.") || is_attention(key);
    });
  }

  /// Returns the model as trained, on a variant's data, with all options that apply.
  Config trained_for(const SweepVariant& variant) const {
    Config config = run_.config;
    for (const std::string& assignment : grid_.sweep.set)
      if (!is_attention(assignment)) config.assign(assignment);
    Settings others = variant.values;
    std::erase_if(others, [](const Setting& setting) { return is_attention(setting.key); });
    assign(config, others);
    const auto task = read_task_info(config);
    return Config::parse(effective_config(config, task ? &*task : nullptr), run_.file);
  }

  /// Adds all variants. On each data set, the model as trained comes first, unless a variant is
  /// identical to it.
  void add_candidates() {
    for (const SweepCell& cell : grid_.cells) {  // one per variant
      const SweepVariant& variant = grid_.variants[cell.variant];
      const Config trained = trained_for(variant);
      // Texts are cut to the model's length.
      const std::string identity = text_of(trained, [](const std::string& key) {
        return key.starts_with("data.") || key == "model.max_length";
      });
      const auto found = std::ranges::find(data_, identity, &Data::identity);
      const auto data = static_cast<size_t>(found - data_.begin());
      if (found == data_.end()) {
        data_.push_back({identity, trained});
        candidates_.push_back(
            {.label = "as trained", .config = trained, .data = data, .as_trained = true});
      }
      const Config own = Config::parse(cell.config, "variant " + variant.label);
      const bool same = model_of(own) == model_of(trained), as_trained = seeds_.empty() && same;
      data_[data].is_in_grid = data_[data].is_in_grid || as_trained;
      candidates_.push_back({variant.label, &variant, own, data, as_trained, same});
    }
    std::erase_if(candidates_, [&](const Candidate& each) {
      return !each.variant && data_[each.data].is_in_grid;
    });
  }

  /// Returns a candidate's model with the run's weights and, with a seed, new random numbers.
  std::unique_ptr<attention::Transformer> place(Candidate& candidate,
                                                std::optional<int64_t> seed) const {
    const nn::Scope scope =
        seed ? scope_of_draw(*seed) : nn::root(DType::f32, read_seed(candidate.config));
    auto out = std::make_unique<attention::Transformer>(scope, candidate.model);
    try {
      candidate.fresh = load_weights(
          *out, run_.checkpoint,
          {.other_attention = candidate.variant != nullptr, .new_draws = seed.has_value()});
    } catch (const DataError& error) {
      throw ConfigError(concat_message(
          candidate.label, ": the weights of ", run_.file, " do not fit: ", error.what(),
          "; an evaluation can change attention and data only, longhand ablate trains variants"));
    }
    return out;
  }

  /// Reads the options, and checks that the data and the weights fit.
  void prepare(Candidate& candidate) {
    const data::Task& task = data_[candidate.data].task;
    try {
      const Plan plan = read_plan(candidate.config, task.info);
      candidate.model = plan.model;
      candidate.batch_size = plan.train.trainer.eval_batch_size;
    } catch (const ConfigError& error) {
      throw ConfigError(candidate.variant ? error.what()
                                          : concat_message(run_.file, ": ", error.what()));
    }
    std::optional<int64_t> seed;
    if (!seeds_.empty() && candidate.variant) seed = seeds_.front();
    const auto model = place(candidate, seed);
    if (seed && !(candidate.fresh.drawn.empty() && candidate.fresh.initialised.empty()))
      candidate.seeds = seeds_;
    candidate.algorithm = model->kernel(0).algorithm(task.info.max_length);
  }

  int64_t examples_of(const Candidate& candidate) const {
    int64_t examples = 0;
    for_each_segment(data_[candidate.data].task.split(options_.split), {.limit = options_.limit},
                     [&](const data::Segment&, const EvaluationOptions& own) {
                       examples += own.limit;
                       return true;
                     });
    return examples;
  }

  void evaluate(Candidate& candidate) {
    std::vector<std::optional<int64_t>> seeds(candidate.seeds.begin(), candidate.seeds.end());
    if (seeds.empty()) seeds.emplace_back();
    std::vector<std::vector<SegmentScores>> by_seed;
    for (const std::optional<int64_t>& seed : seeds) {
      const auto model = place(candidate, seed);
      const LogitsFn logits = logits_of(*model);
      by_seed.push_back(
          *evaluate_members({&logits, 1}, data_[candidate.data].task.split(options_.split),
                            {.batch_size = candidate.batch_size,
                             .limit = options_.limit,
                             .on_progress = [&](const EvaluationProgress& p) {
                               if (options_.on_progress)
                                 options_.on_progress(done_ + p.examples, all_, candidate.label);
                             }}));
      done_ += examples_of(candidate);
      candidate.draws.push_back(total(by_seed.back()).members[0].metrics);
    }
    for (size_t s = 0; s < by_seed.front().size(); ++s) {
      std::vector<ExampleScores> same;
      for (const auto& segments : by_seed) same.push_back(segments[s].members[0].examples);
      const ExampleScores over_seeds = mean(same);
      candidate.examples.append(over_seeds);
      if (by_seed.front().size() > 1)
        candidate.segments.emplace_back(by_seed.front()[s].name, over_seeds);
    }
  }

  const Candidate& reference_of(const Candidate& candidate) const {
    return *std::ranges::find_if(candidates_, [&](const Candidate& each) {
      return each.data == candidate.data && each.as_trained;
    });
  }

  RowField keys_of(const Candidate& candidate) const {
    return key_fields(grid_.keys, candidate.variant ? candidate.variant->values : Settings{});
  }

  Table variants_table() const {
    Table table{.name = "variants",
                .title = fmt::format("Variants in place of the attention of {}, on the {} split",
                                     run_.file, options_.split)};
    table.note =
        "Nothing was trained. 95 % intervals of loss and accuracy are over examples (Student's t; "
        "Wilson, with the effective number of targets). Differences are to the model as trained "
        "on the same data, paired by example, with Student's intervals.";
    if (!seeds_.empty())
      table.note += fmt::format(
          " {} draws (seeds {} to {}) of random features and of weights that are initialised: "
          "scores are means over draws; \"over draws\" has their 95 % interval (Student's t).",
          seeds_.size(), *std::ranges::min_element(seeds_), *std::ranges::max_element(seeds_));
    const data::TaskInfo& info = data_.front().task.info;
    const bool bytes = info.bytes && info.per_token;
    bool initialised = false;
    for (const Candidate& each : candidates_) {
      const Estimate loss = loss_of(each.examples);
      std::vector<double> losses, accuracies;
      if (each.draws.size() > 1)
        for (const Metrics& draw : each.draws) {
          losses.push_back(draw.loss());
          accuracies.push_back(draw.accuracy());
        }
      ScoreDifference trained;
      if (!each.as_trained) trained = difference(each.examples, reference_of(each).examples);
      add_row(table, {{"variant", each.label},
                      keys_of(each),
                      {"examples", each.examples.size()},
                      {"draws", std::ssize(each.draws)},
                      {"loss", loss, "loss"},
                      bytes ? RowField{"bits_per_byte", loss.mean / std::log(2.0), "bits per byte"}
                            : RowField{},
                      {"accuracy", accuracy_of(each.examples), "accuracy"},
                      {"loss_over_draws", estimate(losses), "loss over draws"},
                      {"accuracy_over_draws", accuracy_of_seeds(accuracies), "accuracy over draws"},
                      {"loss_difference", trained.loss, "loss - as trained"},
                      {"accuracy_difference", trained.accuracy, "accuracy - as trained"},
                      {"algorithm", each.algorithm},
                      {"initialised", names_of_tensors(each.fresh.initialised)}});
      initialised = initialised || !each.fresh.initialised.empty();
    }
    if (initialised)
      table.note +=
          " initialised: tensors of the variant that the run does not have, with values "
          "as before training.";
    add_bars(table, "Accuracy by variant", "variant", "accuracy");
    add_charts_against_keys(table, "Accuracy", grid_.keys, "accuracy");
    return table;
  }

  Table draws_table() const {
    Table table{.name = "draws", .title = "Draws, one by one"};
    for (const Candidate& each : candidates_)
      for (size_t i = 0; i < each.seeds.size(); ++i) {
        const Metrics& draw = each.draws[i];
        add_row(table, {{"variant", each.label},
                        keys_of(each),
                        {"seed", each.seeds[i]},
                        {"loss", draw.loss()},
                        {"accuracy", draw.accuracy()}});
      }
    return table;
  }

  Table segments_table() const {
    Table table{.name = "segments", .title = "Segments of the mixture, one by one"};
    for (const Candidate& each : candidates_)
      for (size_t s = 0; s < each.segments.size(); ++s) {
        const auto& [name, scores] = each.segments[s];
        ScoreDifference trained;
        if (!each.as_trained) trained = difference(scores, reference_of(each).segments[s].second);
        add_row(table, {{"variant", each.label},
                        keys_of(each),
                        {"segment", name},
                        {"examples", scores.size()},
                        {"loss", loss_of(scores), "loss"},
                        {"accuracy", accuracy_of(scores), "accuracy"},
                        {"loss_difference", trained.loss, "loss - as trained"},
                        {"accuracy_difference", trained.accuracy, "accuracy - as trained"}});
      }
    if (!table.rows.empty())
      add_bars(table, "Accuracy by segment", "segment", "accuracy", {"variant"});
    return table;
  }

  /// Says which variants lose least and most against the model as trained.
  std::string summary() const {
    struct Loss {
      const Candidate* of;
      Estimate difference;
    };
    const std::string& metric = grid_.sweep.metric;
    const bool by_loss = metric == "loss";
    std::vector<Loss> losses;
    for (const Candidate& each : candidates_) {
      if (each.as_trained || each.same) continue;
      const ScoreDifference trained = difference(each.examples, reference_of(each).examples);
      const Estimate of_metric = by_loss ? trained.loss : trained.accuracy;
      if (!std::isnan(of_metric.mean)) losses.push_back({&each, of_metric});
    }
    if (losses.empty()) return "The grid holds no variant beside the model as trained.";
    std::ranges::stable_sort(losses, [&](const Loss& a, const Loss& b) {
      return by_loss ? a.difference.mean < b.difference.mean
                     : a.difference.mean > b.difference.mean;
    });
    const auto score = [&](const Candidate& each) {
      const ExampleScores& scores = each.examples;
      return to_text(Cell{(by_loss ? loss_of(scores) : accuracy_of(scores)).mean}, 3);
    };
    const auto text_of = [&](const char* what, const Loss& loss) {
      const auto& [mean, low, high, count] = loss.difference;
      const auto number = [](double value) {
        return (value > 0 ? "+" : "") + to_text(Cell{value}, 2);
      };
      std::string text =
          fmt::format("{} {}: {} {} in place of {} ({}", loss.of->label, what, metric,
                      score(*loss.of), score(reference_of(*loss.of)), number(mean));
      if (!std::isnan(low)) text += fmt::format("; 95 %: {} to {}", number(low), number(high));
      if (low <= 0 && high >= 0) text += "; the examples do not tell them apart";
      return text + ")";
    };
    if (losses.size() == 1) return text_of("against the model as trained", losses.front()) + ".";
    return fmt::format("Of {} variants, {}; {}.", losses.size(),
                       text_of("loses least against the model as trained", losses.front()),
                       text_of("loses most", losses.back()));
  }

  const SavedModel& run_;
  const DropInOptions& options_;
  std::vector<int64_t> seeds_;
  Grid grid_;
  std::vector<Candidate> candidates_;  // in the order of the table
  std::vector<Data> data_;
  int64_t done_ = 0, all_ = 0;  // examples
};

}  // namespace

Results evaluate_grid(const SavedModel& run, Sweep grid, const DropInOptions& options) {
  return DropIn(run, std::move(grid), options).results();
}

}  // namespace longhand::train
