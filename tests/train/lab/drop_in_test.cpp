#include "longhand/train/lab/drop_in.h"

#include <map>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/evaluate/ensemble.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/run/run.h"
#include "longhand/train/transfer/load_weights.h"
#include "longhand/train/transfer/saved_model.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace {

/// A run of a few steps with performer.
class TrainedRun : public TemporaryDirectory {
 public:
  explicit TrainedRun(const std::vector<std::string>& set = {}) {
    Config config = Config::parse(R"([model]
d_model = 8
layers = 2
d_mlp = 8
positions = "rotary"
max_length = 32
[attention]
type = "performer"
features = 8
[data]
task = "copy"
length = 8
count = 2
train_size = 16
validation_size = 6
test_size = 12
[train]
steps = 3
batch_size = 4
)",
                                  "tiny");
    for (const std::string& assignment : set) config.assign(assignment);
    Run::create(config, *this / "run")->train();
  }
  SavedModel load() const { return load_model(*this / "run"); }
};

std::vector<std::string> labels(const SavedModel& run, const std::vector<std::string>& over) {
  Sweep sweep = drop_in_grid(run, "", over);
  CHECK(sweep.seeds.empty());
  sweep.seeds = {0};
  std::vector<std::string> out;
  for (const SweepVariant& variant : expand(sweep).variants) out.push_back(variant.label);
  return out;
}

double number(const Table& table, size_t row, const std::string& column) {
  return std::get<double>(table.rows.at(row).at(table.column(column)));
}
std::string text(const Table& table, size_t row, const std::string& column) {
  return to_text(table.rows.at(row).at(table.column(column)), 9);
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("a grid over a run: options apply to the variants that declare them") {
  const TrainedRun folder;
  const SavedModel run = folder.load();
  // In any order of the flags.
  CHECK(labels(run, {"attention.features=4,16", "attention.type=softmax,performer,window"}) ==
        Labels{"softmax", "performer features=4", "performer features=16", "window"});
  CHECK(labels(run, {"attention.features=4,16"}) == Labels{"features=4", "features=16"});
  CHECK(labels(run, {"attention.type=linear,window+linear", "attention.window=2"}) ==
        Labels{"linear", "window+linear window=2"});
  CHECK(labels(run, {"data.length=8,16", "attention.type=softmax"}) ==
        Labels{"softmax length=8", "softmax length=16"});
  const auto error = [&](const std::vector<std::string>& over) {
    return message_of<ConfigError>([&] { evaluate_grid(run, drop_in_grid(run, "", over)); });
  };
  CHECK_THAT(error({"attention.type=softmax,window", "attention.featurs=4"}),
             Contains("no variant of the grid (softmax, window) has this option"));
  CHECK_THAT(error({"attention.featurs=4"}), Contains("did you mean features?"));
  CHECK_THAT(error({"attention.type=softmax,sofmax"}), Contains("did you mean softmax?"));
  CHECK_THAT(error({"train.steps=1,2"}), Contains("no effect on an evaluation"));
  CHECK_THAT(error({"attention.type"}), Contains("expected section.key=value"));
  // What cannot stand in is refused with the reason: also what only the data or the weights show.
  CHECK_THAT(error({"attention.type=softmax,linformer", "model.causal=true"}),
             Contains("variant linformer") && Contains("causal"));
  CHECK_THAT(error({"model.d_model=8,16"}),
             Contains("d_model=16: the weights of") && Contains("longhand ablate trains variants"));
  CHECK_THAT(error({"data.length=8,64"}), Contains("max_length"));

  write_text(folder / "grid.toml",
             "[sweep]\nseeds = [3, 4]\n[[axis]]\nattention.type = [\"performer\", \"softmax\"]\n"
             "[[axis]]\nwhen = { attention.type = \"performer\" }\nattention.features = [4, 8]\n"
             "attention.draw = [\"iid\", \"orthogonal\"]\n");
  const Sweep sweep = drop_in_grid(run, folder / "grid.toml", {}, {"data.test_size=3"});
  CHECK(sweep.seeds == std::vector<int64_t>{3, 4});
  CHECK(expand(sweep).variants.size() == 3);
  write_text(folder / "search.toml", "[search]\noptimizer.lr = [1e-3]\n");
  CHECK_THAT(message_of<ConfigError>([&] { drop_in_grid(run, folder / "search.toml", {}); }),
             Contains("[search]: the options are those of"));
}

TEST_CASE("a grid has the numbers of single evaluations, and differences by example") {
  const TrainedRun folder;
  const SavedModel run = folder.load();
  const auto grid = [&] {
    return evaluate_grid(run,
                         drop_in_grid(run, "", {"attention.type=softmax,performer,linformer"}));
  };
  const Results results = grid();
  const Table& table = results.table("variants");
  REQUIRE(table.rows.size() == 3);  // performer is the model as trained
  std::map<std::string, double> loss;
  for (const char* const type : {"softmax", "performer"}) {
    Config config = run.config;
    config.assign(std::string("attention.type=") + type);
    Experiment experiment(config, data::Splits::only("test"));
    load_weights(experiment.model, run.checkpoint, {.other_attention = true});
    loss[type] =
        evaluate(logits_of(experiment.model), *experiment.task.test, {.batch_size = 4})->loss();
  }
  CHECK(number(table, 0, "loss") == Approx(loss["softmax"]).epsilon(1e-12));
  CHECK(number(table, 1, "loss") == Approx(loss["performer"]).epsilon(1e-12));
  CHECK(number(table, 0, "loss_difference") ==
        Approx(loss["softmax"] - loss["performer"]).margin(1e-9));
  CHECK(text(table, 1, "loss_difference") == "-");
  CHECK(text(table, 0, "initialised").empty());
  CHECK_THAT(text(table, 2, "initialised"), Contains("kernel.projection"));
  CHECK(text(table, 0, "examples") == "12");
  CHECK(number(table, 0, "accuracy_low") <= number(table, 0, "accuracy"));
  CHECK_THROWS_AS(results.table("draws"), Error);
  CHECK_THROWS_AS(results.table("segments"), Error);
  std::string one;
  {
    const WithThreads with(1);
    one = to_json(grid());
  }
  const WithThreads with(3);
  CHECK(to_json(grid()) == one);
}

TEST_CASE("a grid over a model of one layer, with nothing to initialise") {
  const TrainedRun folder({"model.layers=1"});
  const SavedModel run = folder.load();
  const Results results =
      evaluate_grid(run, drop_in_grid(run, "", {"attention.type=softmax,performer"}));
  const Table& table = results.table("variants");
  REQUIRE(table.rows.size() == 2);
  CHECK_THAT(table.note, !Contains("initialised:"));
  CHECK_THAT(evaluate_grid(run, drop_in_grid(run, "", {"attention.type=linformer"}))
                 .table("variants")
                 .note,
             Contains("initialised:"));
}

TEST_CASE("draws differ, are the same every time, and only where there is something to draw") {
  const TrainedRun folder;
  const SavedModel run = folder.load();
  Sweep sweep = drop_in_grid(run, "", {"attention.type=softmax,performer"});
  sweep.seeds = {0, 1, 2};
  const Results results = evaluate_grid(run, sweep);
  const Table& table = results.table("variants");
  REQUIRE(table.rows.size() == 3);
  CHECK(text(table, 0, "variant") == "as trained");
  CHECK(text(table, 1, "draws") == "1");
  CHECK(text(table, 2, "draws") == "3");
  CHECK(number(table, 2, "loss_over_draws_low") < number(table, 2, "loss_over_draws_high"));
  CHECK(number(table, 2, "loss_over_draws") == Approx(number(table, 2, "loss")).epsilon(1e-9));
  CHECK(text(table, 1, "loss_over_draws") == "-");
  const Table& draws = results.table("draws");
  REQUIRE(draws.rows.size() == 3);
  CHECK(text(draws, 0, "seed") == "0");
  CHECK(text(draws, 0, "loss") != text(draws, 1, "loss"));
  // The run was trained from seed 0, with other draws than draw 0.
  CHECK(number(draws, 0, "loss") != number(table, 0, "loss"));
  CHECK(to_json(evaluate_grid(run, sweep)) == to_json(results));
}

TEST_CASE("a grid over data reports segments, and compares on the same data") {
  const TrainedRun folder;
  const SavedModel run = folder.load();
  const Results results = evaluate_grid(
      run, drop_in_grid(run, "", {"data.length=[8,16],[24,32]", "attention.type=softmax"},
                        {"data.test_size=5"}));
  const Table& table = results.table("variants");
  REQUIRE(table.rows.size() == 4);
  CHECK(text(table, 0, "variant") == "as trained");
  CHECK(text(table, 2, "variant") == "as trained");
  const Table& segments = results.table("segments");
  REQUIRE(segments.rows.size() == 8);
  CHECK(text(segments, 7, "segment") == "length 32, 2 symbols");
  CHECK(text(segments, 7, "examples") == "5");
  const double first = number(segments, 2, "loss_difference");
  CHECK(first == Approx(number(segments, 2, "loss") - number(segments, 0, "loss")).margin(1e-9));
}

TEST_CASE("an ensemble of runs, and of draws") {
  const TrainedRun a, b({"train.seed=1", "data.seed=1"}), softmax({"attention.type=softmax"});
  std::vector<SavedModel> runs;
  for (const TrainedRun* const each : {&a, &b, &softmax}) runs.push_back(each->load());
  const Results results = evaluate_ensemble(runs);
  const Table& table = results.table("ensemble");
  REQUIRE(table.rows.size() == 7);
  CHECK_THAT(table.note, Contains("trained on data from other seeds"));
  const double mean =
      (number(table, 0, "loss") + number(table, 1, "loss") + number(table, 2, "loss")) / 3;
  CHECK(number(table, 3, "loss") == Approx(mean));
  CHECK(text(table, 3, "interval") == "over members");
  CHECK(text(table, 4, "model") == "ensemble");
  // The loss is convex: never above the mean of the members.
  CHECK(number(table, 4, "loss") < mean);
  CHECK(number(table, 5, "loss") == Approx(number(table, 4, "loss") - mean).margin(1e-9));

  const Results draws = evaluate_ensemble({a.load()}, {.seeds = {0, 1}});
  CHECK(draws.table("ensemble").rows.size() == 6);
  CHECK(text(draws.table("ensemble"), 1, "draw") == "1");
  CHECK(to_json(evaluate_ensemble({a.load()}, {.seeds = {0, 1}})) == to_json(draws));

  const auto error = [](std::vector<SavedModel> of, EnsembleOptions options = {}) {
    return message_of<ConfigError>([&] { evaluate_ensemble(of, options); });
  };
  CHECK_THAT(error({softmax.load()}, {.seeds = {0, 1}}),
             Contains("has no random numbers, so that all draws are the same"));
  const TrainedRun longer({"data.length=16"});
  CHECK_THAT(error({a.load(), longer.load()}),
             Contains("data.length is 16, but 8 in") && Contains("need the same data"));
  CHECK_NOTHROW(evaluate_ensemble({a.load(), longer.load()}, {.set = {"data.length=8"}}));
  const TrainedRun wide({"model.classes=64", "model.vocabulary=64"});
  CHECK_THAT(error({a.load(), wide.load()}),
             Contains("64 classes of tokens, but") && Contains("need the same classes"));
  const TrainedRun other({"data.task=selective_copy"});
  CHECK_THAT(error({a.load(), other.load()}), Contains("data.task is \"selective_copy\""));
}
