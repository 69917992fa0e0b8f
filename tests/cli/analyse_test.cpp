// longhand analyse: its tables, its files and its errors.
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "longhand/train/results/table.h"
#include "tests/cli/program.h"
#include "tests/cli/table_values.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

train::Results results_in(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return train::results_of_json(text, path.string());
}

/// Runs an analysis that writes its results.
train::Results analyse(std::vector<std::string> arguments, const fs::path& where,
                       std::string* out = nullptr) {
  arguments.insert(arguments.begin(), "analyse");
  arguments.insert(arguments.end(), {"--out", "results.json", "--force"});
  const Outcome outcome = run(arguments, where);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  if (out) *out = outcome.out;
  return results_in(where / "results.json");
}

}  // namespace

TEST_CASE("analyse error: random inputs") {
  const TemporaryDirectory folder;
  std::string out;
  const auto results =
      analyse({"error", "--length", "24", "--norm", "1", "--head-dim", "8", "--count", "2",
               "--draws", "2", "--sizes", "4,8,16", "--seed", "3", "--steps", "2"},
              folder.path(), &out);
  CHECK(results.kind == "analyse error");
  CHECK_THAT(results.command, Contains("longhand analyse error --length 24"));
  CHECK(!results.machine.empty());
  CHECK(results.date.size() == 20);
  CHECK_THAT(out, Contains("performer") && Contains("uniform") && Contains("±") &&
                      Contains("written to results.json"));
  const train::Table& errors = results.table("errors");
  CHECK(text(errors, 0, "variant") == "uniform");
  std::set<std::string> variants;
  for (size_t i = 0; i < errors.rows.size(); ++i) {
    variants.insert(text(errors, i, "variant"));
    CHECK(number(errors, i, "output") >= 0);
  }
  for (const char* const name : {"linformer", "performer", "nystrom", "rff", "svd", "gaussian"})
    CHECK(variants.contains(name));
  CHECK(!results.table("slopes").rows.empty());
  CHECK(results.table("inverse").rows.size() == 3);
  // The same bits again, with another number of threads.
  const auto json = [&](const char* threads, const std::map<std::string, std::string>& set = {}) {
    return run({"analyse", "error", "--length", "16", "--norm", "2", "--count", "2", "--attention",
                "performer:features=8:kernel=hyperbolic", "--threads", threads, "--json"},
               folder.path(), set);
  };
  const Outcome one = json("1"), three = json("3");
  REQUIRE(one.code == 0);
  const train::Results a = train::results_of_json(one.out, "a"),
                       b = train::results_of_json(three.out, "b");
  CHECK(train::to_csv(a.table("errors")) == train::to_csv(b.table("errors")));
  CHECK(text(a.table("errors"), 1, "options") == "kernel=hyperbolic");
  CHECK(text(a.table("errors"), 1, "size") == "8");
  const train::Results other =
      train::results_of_json(json("1", {{"LONGHAND_SEED", "5"}}).out, "another seed");
  CHECK(number(other.table("errors"), 1, "output") != number(a.table("errors"), 1, "output"));
}

TEST_CASE("analyse error: errors of zero are left out of exponents") {
  const TemporaryDirectory folder;
  // All keys are equal: the weights of nystrom are exact, those of a window are not.
  const auto results = analyse({"error", "--length", "16", "--norm", "0", "--head-dim", "8",
                                "--count", "1", "--sizes", "2,4,8"},
                               folder.path());
  const train::Table &errors = results.table("errors"), &slopes = results.table("slopes");
  for (size_t i = 0; i < errors.rows.size(); ++i)
    if (text(errors, i, "variant") == "nystrom") CHECK(number(errors, i, "weights") == 0);
  std::set<std::string> seen;
  for (size_t i = 0; i < slopes.rows.size(); ++i) {
    const std::string variant = text(slopes, i, "variant");
    seen.insert(variant);
    if (variant == "nystrom") CHECK(text(slopes, i, "weights") == "-");
    if (variant == "window") CHECK(number(slopes, i, "weights") < 0);
  }
  CHECK(seen.contains("nystrom"));
  CHECK(seen.contains("window"));
}

TEST_CASE("analyse: a run by layer and head") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--out", "run", "--set", "train.steps=2", "--set",
               "attention.type=nystrom", "--set", "attention.landmarks=4"},
              folder.path())
              .code == 0);
  const auto errors = analyse(
      {"error", "--run", "run", "--sizes", "4", "--count", "2", "--draws", "2", "--steps", "1"},
      folder.path());
  const train::Table& of = errors.table("errors");
  CHECK(text(of, 0, "layer") == "0");
  CHECK(text(of, 0, "length") == "16");
  CHECK(text(of, of.rows.size() - 1, "options") == "as trained");
  CHECK(text(of, of.rows.size() - 1, "head") == "1");
  CHECK(number(of, of.rows.size() - 1, "output") > 0);

  const auto spectrum = analyse({"spectrum", "--run", "run", "--length", "8,16"}, folder.path());
  CHECK(spectrum.table("ranks").rows.size() == 2 * 2);
  CHECK(spectrum.table("spectrum").rows.size() == 2 * (8 + 16));

  std::string out;
  const auto maps = analyse({"attention", "run", "--index", "3"}, folder.path(), &out);
  CHECK(maps.table("shapes").rows.size() == 2);
  CHECK(maps.table("maps").rows.size() == 2 * 16 * 16);
  CHECK(maps.table("maps").charts.at(0).colour == "weight");
  CHECK_THAT(out, Contains("layer 0, head 1"));
  // The weights of a query add up to 1, up to what nystrom's approximate inverse leaves.
  double sum = 0;
  for (size_t i = 0; i < 16; ++i) sum += number(maps.table("maps"), i, "weight");
  CHECK(sum == Approx(1).margin(0.2));
  // The last query reads from the state what its weights are: q = k of the last token is in the last column.
  std::vector<std::string> words = {"attention", "--attention", "retnet:norm=false:gate=false",
                                    "--causal",  "--same-keys", "--length",
                                    "5",         "--head-dim",  "3"};
  const auto read = analyse(words, folder.path());
  words.emplace_back("--state");
  const auto states = analyse(words, folder.path());
  const train::Table& state = states.table("maps");
  REQUIRE(state.rows.size() == 3 * 5);
  CHECK(state.charts.at(0).y == "channel");
  for (size_t j = 0; j < 5; ++j) {
    double weight = 0;
    for (size_t c = 0; c < 3; ++c)
      weight += number(state, 5 * c + 4, "weight") * number(state, 5 * c + j, "weight");
    CHECK(number(read.table("maps"), 4 * 5 + j, "weight") ==
          Approx(weight / std::sqrt(3.0)).epsilon(1e-5));
  }

  const auto kernel =
      analyse({"kernel", "--run", "run", "--sizes", "4", "--draws", "2", "--kernel", "gaussian"},
              folder.path());
  CHECK(kernel.table("kernel").rows.size() == 2 * (4 + 4));

  // 16 tokens, 2 heads of dimension 8: the linear kernel is exact from 8 landmarks on.
  const auto landmarks =
      analyse({"landmarks", "--run", "run", "--draws", "4"}, folder.path(), &out);
  const train::Table& l = landmarks.table("landmarks");
  CHECK(l.rows.size() == 2 * 4 * 5);
  CHECK(text(l, l.rows.size() - 1, "head") == "1");
  CHECK(text(l, l.rows.size() - 1, "landmarks") == "16");
  CHECK_THAT(out, Contains("16 tokens, D = 8") && Contains("from 8 landmarks on (D = 8)"));

  const auto heuristics = analyse({"heuristics", "--run", "run"}, folder.path());
  const train::Table& h = heuristics.table("heuristics");
  CHECK(text(h, 0, "predictor") == "majority");
  CHECK(text(h, h.rows.size() - 1, "predictor") == "nystrom model");

  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"error", "--run", "run", "--norm", "1"},
        {"error", "--run", "run", "--length", "17"},
        {"error", "--attention", "nystrom:landmark=4"},
        {"error", "--attention", "nyström"},
        {"error", "--correlation", "1"},
        {"landmarks", "--run", "run", "--head-dim", "4"},
        {"landmarks", "--run", "run", "--tokens", "17"},
        {"kernel", "--kernel", "laplace"},
        {"attention", "run", "--index", "1000"},
        {"attention", "run", "--state", "--causal"},
        {"attention", "--attention", "retnet", "--state"},
        {"heuristics"},
        {"heuristics", "--run", "run", "copy"}}) {
    std::vector<std::string> arguments = wrong;
    arguments.insert(arguments.begin(), "analyse");
    const Outcome outcome = run(arguments, folder.path());
    INFO(wrong[0] << " " << outcome.err);
    CHECK(outcome.code == 2);
  }
}

TEST_CASE("analyse landmarks, kernel and heuristics") {
  const TemporaryDirectory folder;
  std::string out;
  const auto landmarks = analyse({"landmarks", "--draws", "20"}, folder.path(), &out);
  CHECK(landmarks.table("landmarks").rows.size() == 4 * 20);
  CHECK_THAT(out, Contains("from 10 landmarks on (D = 10)"));

  const auto kernel = analyse({"kernel", "--length", "24", "--norm", "1", "--sizes", "4,8,16",
                               "--draws", "8", "--kernel", "softmax"},
                              folder.path());
  CHECK(kernel.table("kernel").rows.size() == 3 * (8 + 4));
  CHECK(kernel.table("slopes").rows.size() == 8 + 4);
  REQUIRE(kernel.table("kernel").charts.size() == 1);
  CHECK(kernel.table("kernel").charts[0].theory == "expected");

  const auto mqar = analyse({"heuristics", "mqar", "data.train_size=200", "data.test_size=100",
                             "data.validation_size=10"},
                            folder.path());
  const train::Table& h = mqar.table("heuristics");
  CHECK(text(h, 2, "predictor") == "values shown");
  CHECK(number(h, 2, "accuracy") == Approx(0.25));
  const train::Table& groups = mqar.table("groups");
  std::set<std::string> by;
  for (size_t i = 0; i < groups.rows.size(); ++i) by.insert(text(groups, i, "by"));
  CHECK(by == std::set<std::string>{"distance", "pairs"});
}

TEST_CASE("analyse efficiency") {
  const TemporaryDirectory folder;
  const auto results =
      analyse({"efficiency", "--attention", "linformer", "--sizes", "8,16", "--length", "64,128",
               "--tokens", "128", "--seconds", "0", "--threads", "1"},
              folder.path());
  const train::Table& costs = results.table("costs");
  CHECK(costs.rows.size() == 2 * 3);
  for (size_t i = 0; i < costs.rows.size(); ++i)
    for (const char* const column : {"ms", "ms_forward", "mib"})
      CHECK(number(costs, i, column) > 0);
  CHECK(number(costs, 0, "time_saved") == 1);  // softmax
  CHECK(results.table("length_slopes").rows.size() == 3);
  CHECK(results.table("size_slopes").rows.size() == 2);
  CHECK(results.table("crossovers").rows.size() == 2);
  const train::Table& saved = results.table("time_saved");
  CHECK(saved.rows.size() == 2);
  CHECK(saved.columns.back().name == "k16");
  CHECK(run({"analyse", "efficiency", "--attention", "nothing"}, folder.path()).code == 2);
}
