// longhand convert: a trained model with layers of low rank.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

namespace fs = std::filesystem;

Json quiet_json_of(std::vector<std::string> arguments, const fs::path& where) {
  arguments.insert(arguments.end(), {"--json", "--quiet"});
  return Json::parse(succeed(arguments, where).out);
}

}  // namespace

TEST_CASE("convert writes a run that can be evaluated and trained further") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run", "--set", "train.ema_decay=0.5",
           "model.d_mlp=32"},
          folder.path());
  const std::vector<std::string> convert{"convert", "run", "--low-rank", "4", "--seconds", "0"};
  auto arguments = convert;
  arguments.insert(arguments.end(), {"--out", "a/small"});
  const Json json = quiet_json_of(arguments, folder.path());
  CHECK(json["low_rank"] == Json::parse("[4]"));
  REQUIRE(json["layers"].size() == 6);
  const Json& fc1 = json["layers"][4];
  CHECK(fc1["name"] == "blocks.0.mlp.fc1");
  CHECK(fc1["shape"] == Json::parse("[32, 16]"));
  CHECK(fc1["rank"] == 4);
  CHECK(fc1["full"] == false);
  CHECK(fc1["parameters_before"] == 32 * 16 + 32);
  CHECK(fc1["parameters_after"] == 4 * (32 + 16) + 32);
  const double energy = fc1["energy"], error = fc1["error"];
  CHECK(error * error == Approx(1 - energy).margin(1e-6));
  const int64_t saved = 4 * (256 - 4 * 32) + 2 * (512 - 4 * 48);
  CHECK(json["parameters_before"].get<int64_t>() - json["parameters_after"].get<int64_t>() ==
        saved);
  for (const char* const key : {"forward_seconds_before", "forward_seconds_after",
                                "step_seconds_before", "step_seconds_after"})
    CHECK(json["time"][key].get<double>() > 0);

  // The metrics printed are those of evaluate, before and after.
  for (const auto& [path, which] : {std::pair{"run", "before"}, {"a/small", "after"}}) {
    const Json own = quiet_json_of({"evaluate", path, "--split", "validation"}, folder.path());
    for (const char* const metric : {"loss", "accuracy"})
      CHECK(own[metric] == json["evaluation"][std::string(metric) + "_" + which]);
  }
  // Its configuration trains a model of the same shapes.
  succeed({"train", "a/small/config.toml", "--quiet", "--out", "again", "--set", "train.steps=1"},
          folder.path());
  const auto shapes = [&](const std::string& file) {
    std::map<std::string, std::vector<int64_t>> out;
    for (const auto& [name, tensor] : train::load(folder / file).model)
      out[name] = {tensor.shape().begin(), tensor.shape().end()};
    return out;
  };
  CHECK(shapes("a/small/checkpoints/best.h5") == shapes("again/checkpoints/last.h5"));
  const auto data = [&](const std::string& file) { return train::load(folder / file).data; };
  CHECK(data("a/small/checkpoints/best.h5") == data("run/checkpoints/best.h5"));
  // It is no run to resume: there is no state of an optimizer.
  const Outcome resumed = run({"train", "--resume", "a/small"}, folder.path());
  CHECK(resumed.code == 3);
  CHECK_THAT(resumed.err, Contains("--init-from a/small"));
  CHECK_THAT(succeed({"checkpoint", "repair", "a/small"}, folder.path()).out,
             Contains("longhand train a/small/config.toml --init-from a/small\n"));
  // All of its weights are taken by a new run.
  const Json further =
      quiet_json_of({"train", "a/small/config.toml", "--init-from", "a/small", "--out", "further"},
                    folder.path());
  CHECK(further["init_from"]["initialised"].empty());
  CHECK(further["init_from"]["unused"].empty());

  const Outcome text = succeed({"convert", "run/checkpoints/last.h5", "--low-rank", "0.6", "--out",
                                "b", "--no-evaluate", "--seconds", "0"},
                               folder.path());
  CHECK_THAT(text.out, Contains("blocks.0.attention.query") && Contains("training step") &&
                           Contains("parameters") && !Contains("accuracy"));
  CHECK(fs::exists(folder / "b/checkpoints/best.h5"));
}

TEST_CASE("convert: errors leave nothing behind") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run", "--set", "train.steps=1"},
          folder.path());
  fs::create_directory(folder / "taken");
  write_text(folder / "taken/file", "");
  const auto failure = [&](std::vector<std::string> arguments, int code = 2) {
    arguments.insert(arguments.begin(), {"convert"});
    const Outcome outcome = run(arguments, folder.path());
    INFO(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.out == "");
    CHECK_FALSE(fs::exists(folder / "new"));
    return outcome.err;
  };
  CHECK_THAT(failure({"run", "--out", "new"}), Contains("--low-rank"));
  CHECK_THAT(failure({"run", "--low-rank", "4"}), Contains("--out"));
  CHECK_THAT(failure({"run", "--low-rank", "0", "--out", "new"}),
             Contains("--low-rank 0: expected a rank"));
  CHECK_THAT(failure({"run", "--low-rank", "1.01", "--out", "new"}), Contains("at most 1"));
  CHECK_THAT(failure({"run", "--low-rank", "17", "--out", "new"}), Contains("at most 7"));
  CHECK_THAT(failure({"none", "--low-rank", "4", "--out", "new"}),
             Contains("no run directory none"));
  CHECK_THAT(failure({"run", "--low-rank", "4", "--out", "new", "--checkpoint", "x"}),
             Contains("no checkpoint \"x\""));
  CHECK_THAT(failure({"run", "--low-rank", "4", "--out", "new", "--split", "x"}), Contains("x"));
  CHECK_THAT(failure({"run", "--low-rank", "4", "--out", "run"}),
             Contains("run already holds a run; choose another --out\n"));
  CHECK_THAT(failure({"run", "--low-rank", "4", "--out", "taken"}),
             Contains("taken is not empty; choose another --out"));
  write_text(folder / "broken.h5", "x");
  failure({"broken.h5", "--low-rank", "4", "--out", "new"}, 3);
}

TEST_CASE("a run with layers of low rank resumes with the same bits") {
  const TinyFolder folder;
  const auto train = [&](const std::string& out, const std::string& steps) {
    succeed({"train", "config.toml", "--quiet", "--out", out, "--set",
             "model.low_rank=[2,0,3,4,5,6]", "train.steps=" + steps},
            folder.path());
  };
  train("whole", "20");
  train("parts", "10");
  succeed({"train", "--resume", "parts", "--quiet", "--threads", "1", "--set", "train.steps=20"},
          folder.path());
  const auto a = train::load(folder / "whole/checkpoints/last.h5"),
             b = train::load(folder / "parts/checkpoints/last.h5");
  CHECK(a.model.at("blocks.0.attention.query.weight_in").shape() == Shape{2, 16});
  REQUIRE(a.model.size() == b.model.size());
  for (const auto& [name, tensor] : a.model) CHECK(identical(tensor, b.model.at(name)));
  for (const auto& [name, tensor] : a.optimizer) CHECK(identical(tensor, b.optimizer.at(name)));
}
