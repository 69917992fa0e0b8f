// longhand predict; longhand checkpoint diff, export, import and repair; longhand report --csv, --json.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

namespace fs = std::filesystem;

/// A trained run, `run`.
struct Trained : TinyFolder {
  explicit Trained(const std::string& set = "train.log_every=2") {
    succeed({"train", "config.toml", "--quiet", "--out", "run", "--set", set}, path());
  }
  Json json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    return Json::parse(succeed(arguments, path()).out);
  }
};

}  // namespace

TEST_CASE("predict writes the same predictions in each format, with the metrics of evaluate") {
  const Trained folder;
  const Json evaluated = folder.json({"evaluate", "run"});
  const std::string lines = succeed({"predict", "run", "--threads", "1"}, folder.path()).out;
  succeed({"predict", "run", "-o", "p.jsonl", "--threads", "3", "--quiet"}, folder.path());
  CHECK(data::read_text_file(folder / "p.jsonl") == lines);
  const Json summary = folder.json({"predict", "run", "-o", "p.npz"});
  for (const char* const key : {"loss", "accuracy", "targets", "examples", "checkpoint"})
    CHECK(summary[key] == evaluated[key]);
  CHECK(summary["classes"] == 10);

  const train::TensorFile npz = train::read_tensor_file(folder / "p.npz");
  CHECK(npz.metadata.at("split") == "test");
  CHECK(npz.metadata.at("values") == "probabilities");
  const Tensor probabilities = npz.tensors.at("probabilities");
  succeed({"predict", "run", "-o", "p.h5"}, folder.path());
  const auto h5 = data::Hdf5Reader::open(folder / "p.h5");
  for (const auto& [name, tensor] : npz.tensors) CHECK(identical(h5.read(name), tensor));
  std::istringstream in(lines);
  int64_t row = 0;
  int example = 0;
  for (std::string line; std::getline(in, line); ++example) {
    const Json json = Json::parse(line);
    CHECK(json["example"] == example);
    for (size_t i = 0; i < json["targets"].size(); ++i, ++row) {
      CHECK(json["positions"][i] == npz.tensors.at("position").at({row}));
      CHECK(json["predictions"][i] == npz.tensors.at("prediction").at({row}));
      for (int64_t c = 0; c < 10; ++c)
        CHECK(json["probabilities"][i][static_cast<size_t>(c)].get<float>() ==
              static_cast<float>(probabilities.at({row, c})));
    }
  }
  CHECK(example == 16);
  CHECK(row == probabilities.size(0));
}

TEST_CASE("predict reads other data, and says what it expects") {
  const Trained folder;
  data::Hdf5Writer out;
  out.put("test/tokens", Tensor::full({3, 8}, 1, DType::i32));
  out.put("test/targets", Tensor::full({3, 8}, 2, DType::i32));
  data::write_file_durably(folder / "mine.h5", out.image());
  const std::string lines =
      succeed({"predict", "run", "--data", "mine.h5", "--logits"}, folder.path()).out;
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  CHECK_THAT(lines,
             Contains("\"logits\": [[") && Contains("\"positions\": [0, 1, 2, 3, 4, 5, 6, 7]"));
  const auto refused = [&](std::vector<std::string> more, int code, const std::string& text) {
    more.insert(more.begin(), {"predict", "run"});
    const Outcome outcome = run(more, folder.path());
    CHECK(outcome.code == code);
    CHECK_THAT(outcome.err, Contains(text));
  };
  const std::string two = succeed({"predict", "run", "--limit", "2"}, folder.path()).out;
  CHECK(std::count(two.begin(), two.end(), '\n') == 2);
  refused({"-o", "p.csv"}, 2, "ends in .jsonl, .h5, .npz or .safetensors");
  refused({"-o", "none/p.npz"}, 2, "there is no folder none");
  refused({"--data", "mine.csv"}, 2, "the data of copy are generated");
  refused({"--data", "none.h5"}, 3, "none.h5");
  refused({"--split", "tset"}, 2, "tset");
  refused({"--json"}, 2, "-o FILE");
  CHECK_FALSE(fs::exists(folder / "p.csv"));
}

TEST_CASE("predict --data predicts every row of a file, in its order") {
  const TinyFolder folder;
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += (i % 3 ? "good\tgood film " : "bad\tbad film ") + std::to_string(i) + "\n";
  write_text(folder / "films.tsv", rows);
  const std::vector<std::string> films = {"train.steps=2", "train.batch_size=2",
                                          "data.task=text_classification", "data.path=films.tsv",
                                          "model.max_length=16"};
  std::vector<std::string> train = {"train", "config.toml", "--quiet", "--out", "run", "--set"};
  train.insert(train.end(), films.begin(), films.end());
  write_text(folder / "config.toml", "[model]\nd_model = 8\nheads = 2\nlayers = 1\nd_mlp = 8\n");
  succeed(train, folder.path());
  const auto predicted = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"predict", "run"});
    std::istringstream in(succeed(more, folder.path()).out);
    std::vector<Json> out;
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
    return out;
  };
  const std::vector<Json> all = predicted({"--data", "films.tsv"});
  REQUIRE(all.size() == 12);
  for (int i = 0; i < 12; ++i) {
    CHECK(all[i]["example"] == i);
    CHECK(all[i]["target"] == (i % 3 ? 1 : 0));
  }
  CHECK(predicted({}).size() == 1);  // of the split

  // Rows of one label, which is the second class.
  write_text(folder / "some.tsv", "good\tgood film 1\ngood\tgood film 2\n");
  const Outcome some = run({"predict", "run", "--data", "some.tsv"}, folder.path());
  CHECK(some.code == 3);
  CHECK_THAT(some.err, Contains("data.labels"));
  const std::vector<Json> two = predicted({"--data", "some.tsv", "--set", "data.labels=bad,good"});
  REQUIRE(two.size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(two[i]["target"] == 1);
    CHECK(two[i]["probabilities"] == all[i + 1]["probabilities"]);
  }
  write_text(folder / "more.tsv", rows + "dull\tdull film\n");
  CHECK_THAT(
      run({"predict", "run", "--data", "more.tsv", "--set", "data.labels=bad,good"}, folder.path())
          .err,
      Contains("more.tsv:13:1: the label 'dull' does not occur"));
  // Labels that are fewer than classes of the model would have other numbers.
  succeed({"train", "config.toml", "--quiet", "--out", "three", "--set", "train.steps=1",
           "train.batch_size=2", "data.task=text_classification", "data.path=more.tsv",
           "model.max_length=16"},
          folder.path());
  const Outcome fewer = run({"predict", "three", "--data", "films.tsv"}, folder.path());
  CHECK(fewer.code == 2);
  CHECK_THAT(fewer.err, Contains("its labels are bad, good, and the model has 3 classes"));
}

TEST_CASE("exported weights are imported with all their bits") {
  const Trained folder("train.ema_decay=0.5");
  for (const std::string file : {"w.safetensors", "w.npz"}) {
    CAPTURE(file);
    CHECK(folder.json({"checkpoint", "export", "run", "-o", file})["tensors"] == 22);
    CHECK(folder.json({"checkpoint", "diff", "run", file})["equal"] == true);
    const std::string out = "model-" + file;
    const Json imported = folder.json({"checkpoint", "import", file, "--out", out});
    CHECK(imported["initialised"].empty());
    CHECK(imported["unused"].empty());
    CHECK(folder.json({"checkpoint", "diff", "run", out, "--weights"})["equal"] == true);
    CHECK_THAT(run({"checkpoint", "diff", "run", out}, folder.path()).out,
               Contains("optimizer: 45 tensors in A, 0 in B"));
    CHECK(folder.json({"evaluate", out})["loss"] == folder.json({"evaluate", "run"})["loss"]);
    // Again: the same file.
    succeed({"checkpoint", "export", out, "-o", "again-" + file}, folder.path());
    CHECK(data::read_file(folder / ("again-" + file)) == data::read_file(folder / file));
  }
  const Json tuned = folder.json({"train", "model-w.npz/config.toml", "--init-from", "model-w.npz",
                                  "--out", "tuned", "--set", "train.steps=1"});
  CHECK(tuned["init_from"]["initialised"].empty());
  const Outcome resumed = run({"train", "--resume", "model-w.npz"}, folder.path());
  CHECK(resumed.code == 3);

  // Without a configuration, as other programs write them.
  train::TensorFile plain = train::read_tensor_file(folder / "w.npz");
  plain.metadata.clear();
  train::write_tensor_file(folder / "plain.npz", plain);
  const Outcome none = run({"checkpoint", "import", "plain.npz", "--out", "x"}, folder.path());
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("--config CONFIG.toml"));
  succeed({"checkpoint", "import", "plain.npz", "--out", "x", "--config", "config.toml"},
          folder.path());
  CHECK(folder.json({"evaluate", "x"})["loss"] == folder.json({"evaluate", "run"})["loss"]);
  const Outcome other = run({"checkpoint", "import", "plain.npz", "--out", "y", "--config",
                             "config.toml", "--set", "model.d_mlp=8"},
                            folder.path());
  CHECK(other.code == 3);
  CHECK_THAT(other.err, Contains("blocks.0.mlp.fc1.weight"));
  // As far as they fit, under other names.
  train::TensorFile wrapped;
  for (const auto& [name, tensor] : plain.tensors) wrapped.tensors["module." + name] = tensor;
  train::write_tensor_file(folder / "wrapped.npz", wrapped);
  const Json partial =
      folder.json({"checkpoint", "import", "wrapped.npz", "--out", "part", "--config",
                   "config.toml", "--set", "model.d_mlp=8", "--prefix", "module.", "--partial"});
  CHECK(partial["initialised"].size() == 3);
  CHECK(partial["taken"].size() == 19);
  CHECK_FALSE(fs::exists(folder / "y"));
  CHECK(run({"checkpoint", "export", "run", "-o", "w.pt"}, folder.path()).code == 2);
  CHECK(run({"checkpoint", "export", "run", "-o", "w.npz", "--part", "x"}, folder.path()).code ==
        2);

  // What a file of others names is not opened.
  plain.metadata["config"] = "[data]\ntask = \"tokens\"\npath = \"/etc/passwd\"\n";
  train::write_tensor_file(folder / "bad.npz", plain);
  const Outcome bad = run({"checkpoint", "import", "bad.npz", "--out", "z"}, folder.path());
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, Contains("/etc/passwd") && Contains("--trust-paths"));
}

TEST_CASE("checkpoint diff names tensors, options and the largest differences") {
  const Trained folder;
  succeed({"train", "config.toml", "--quiet", "--out", "wide", "--set", "model.d_mlp=8"},
          folder.path());
  CHECK_THAT(succeed({"checkpoint", "diff", "run", "run"}, folder.path()).out,
             Contains("model: 0 of 22 tensors differ"));
  const Outcome outcome = run({"checkpoint", "diff", "run", "wide"}, folder.path());
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.out, Contains("model.d_mlp: 16 in A, 8 in B") &&
                              Contains("blocks.0.mlp.fc1.weight") && Contains("f32 [8, 16]"));
  succeed({"train", "config.toml", "--quiet", "--out", "other", "--seed", "1"}, folder.path());
  const std::vector<std::string> similar = {"checkpoint", "diff",        "run",  "other",
                                            "--weights",  "--tolerance", "1000", "--all"};
  CHECK_THAT(succeed(similar, folder.path()).out, Contains("weights: 0 of 22 tensors differ") &&
                                                      Contains("head.bias") &&
                                                      !Contains("optimizer"));
  const Outcome json = run({"checkpoint", "diff", "run", "wide", "--json"}, folder.path());
  CHECK(Json::parse(json.out)["equal"] == false);
  CHECK(run({"checkpoint", "diff", "run"}, folder.path()).code == 2);
  CHECK(run({"checkpoint", "diff", "run", "none"}, folder.path()).code == 2);
}

TEST_CASE("checkpoint repair says what it did, and a run without a valid checkpoint is an error") {
  const Trained folder;
  CHECK_THAT(succeed({"checkpoint", "repair", "run"}, folder.path()).out,
             Contains("in order: last.h5 is of step 20"));
  auto bytes = data::read_file(folder / "run/checkpoints/last.h5");
  bytes[1000] ^= std::byte{1};
  data::write_file_durably(folder / "run/checkpoints/last.h5", bytes);
  CHECK_THAT(succeed({"checkpoint", "repair", "run"}, folder.path()).out,
             Contains("last.h5 as last.h5.damaged: ") && Contains("restored  last.h5 from ") &&
                 Contains("repaired: last.h5 is of step "));
  CHECK(folder.json({"checkpoint", "repair", "run"})["changed"] == false);
  succeed({"checkpoint", "verify", "--all", "run"}, folder.path());
  for (const auto& file : fs::directory_iterator(folder / "run/checkpoints"))
    write_text(file.path(), "damaged");
  const Outcome lost = run({"checkpoint", "repair", "run"}, folder.path());
  CHECK(lost.code == 3);
  CHECK_THAT(lost.err, Contains("no checkpoint is valid, and nothing was changed"));
}

TEST_CASE("report lists runs as CSV and JSON") {
  const Trained folder;
  succeed({"train", "config.toml", "--quiet", "--out", "other", "--seed", "1"}, folder.path());
  const std::string csv = succeed({"report", "run", "other", "--csv"}, folder.path()).out;
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  CHECK_THAT(csv, Contains("run,variant,") && Contains("\nother,"));
  const Json json = folder.json({"report", "run", "other"});
  CHECK(json["kind"] == "report");
  CHECK(json["tables"][1]["rows"].size() == 2);
  succeed({"report", "run", "--csv", "-o", "runs.csv"}, folder.path());
  CHECK_THAT(data::read_text_file(folder / "runs.csv"), Contains("\nrun,"));
  CHECK_FALSE(fs::exists(folder / "report.html"));
  CHECK(run({"report", "run", "--csv", "--json"}, folder.path()).code == 2);

  // Only a report of the same kind is replaced.
  succeed({"report", "run", "--json", "-o", "runs.json"}, folder.path());
  write_text(folder / "mine.csv", "run,score\n1,2\n");
  const std::string summary = data::read_text_file(folder / "run/summary.json");
  for (const auto& [flag, file, code] : {std::tuple{"--csv", "runs.csv", 0},
                                         {"--json", "runs.json", 0},
                                         {"--csv", "runs.json", 2},
                                         {"--csv", "mine.csv", 2},
                                         {"--json", "run/summary.json", 2}}) {
    CAPTURE(flag, file);
    CHECK(run({"report", "run", flag, "-o", file}, folder.path()).code == code);
  }
  CHECK(data::read_text_file(folder / "run/summary.json") == summary);
}
