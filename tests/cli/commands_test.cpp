// The output and the files of successful subcommands.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "longhand/attention/registry.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/core/storage.h"
#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/results/table.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

namespace fs = std::filesystem;

Json json_of(const std::vector<std::string>& arguments, const fs::path& where) {
  const Outcome outcome = succeed(arguments, where);
  INFO(outcome.out);
  return Json::parse(outcome.out);
}

/// A text with something to learn, and bytes beyond ASCII.
std::string some_text() {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "line " + std::to_string(i * i % 97) + " of a small text: na\xc3\xafve caf\xc3\xa9\n";
  return text;
}

}  // namespace

TEST_CASE("assignments count wherever they stand") {
  const TinyFolder folder;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--set", "train.steps=5", "train.batch_size=7"},
        {"--set", "train.steps=5", "--comments", "train.batch_size=7"},
        {"--set", "train.batch_size=7", "--comments", "--set", "train.steps=5"}}) {
    std::vector<std::string> arguments{"config", "dump", "config.toml"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = succeed(arguments, folder.path());
    CHECK_THAT(outcome.out, Contains("\nsteps = 5") && Contains("\nbatch_size = 7"));
  }
}

TEST_CASE("train writes a complete run directory") {
  const TinyFolder folder;
  const Outcome outcome = succeed({"train", "config.toml", "--out", "a/run"}, folder.path());
  CHECK_THAT(outcome.out,
             Contains("finished after 20 steps") && Contains("peak memory") && Contains("a/run"));
  CHECK_THAT(outcome.err, Contains("softmax attention") && Contains("validation loss"));

  const fs::path run = folder / "a/run";
  for (const char* name : {"config.toml", "metrics.jsonl", "summary.json", "checkpoints/last.h5",
                           "checkpoints/best.h5"})
    CHECK(fs::exists(run / name));

  std::ifstream metrics(run / "metrics.jsonl");
  int64_t training = 0, validation = 0;
  for (std::string line; std::getline(metrics, line);) {
    const Json record = Json::parse(line);
    for (const char* key : {"step", "loss", "accuracy", "tokens_per_second", "peak_memory_bytes"})
      CHECK(record[key].is_number());
    if (record["split"] == "train") {
      CHECK(record["step"] == ++training);
      CHECK(record["learning_rate"] == 0.01);
    } else {
      CHECK(record["split"] == "validation");
      CHECK(record["step"] == 10 * ++validation);
    }
  }
  CHECK(training == 20);
  CHECK(validation == 2);

  const Json summary = Json::parse(data::read_text_file(run / "summary.json"));
  CHECK(summary["status"] == "finished");
  CHECK(summary["step"] == 20);
  CHECK(summary["attention"] == "softmax");
}

TEST_CASE("the peak of memory that a run reports is that which the system counted") {
  const TinyFolder folder;
  const Outcome outcome = succeed(
      {"train", "config.toml", "--quiet", "--json", "--out", "run", "--set", "model.d_model=64",
       "data.length=2048", "data.train_size=16", "data.validation_size=16", "data.test_size=1",
       "train.steps=1", "train.batch_size=16", "attention.type=linear"},
      folder.path());
  const auto reported = Json::parse(outcome.out)["peak_memory_bytes"].get<int64_t>();
  // The system counts what the process had in common with this one before it began, too.
  REQUIRE(reported > peak_resident_memory());
  // The kernel counts the pages of each thread in batches.
  CHECK(reported <= outcome.peak_memory + (int64_t{1} << 20));
  CHECK(static_cast<double>(reported) >= 0.98 * static_cast<double>(outcome.peak_memory));
  CHECK(Json::parse(data::read_text_file(folder / "run/summary.json"))["peak_memory_bytes"] ==
        reported);
}

TEST_CASE("exact attention under another name is reported") {
  const TinyFolder folder;
  const Outcome outcome = succeed(
      {"train", "config.toml", "--out", "run", "--set", "attention.type=nystrom"}, folder.path());
  CHECK_THAT(outcome.err, Contains("softmax: 16 tokens are at most 64 landmarks"));
  std::ifstream in(folder / "run" / "summary.json");
  CHECK(Json::parse(in)["algorithm"] == "softmax: 16 tokens are at most 64 landmarks");
}

TEST_CASE("the directory of a run is named after its configuration and the time") {
  const TinyFolder folder;
  for (int i = 0; i < 2; ++i)
    succeed({"train", "config.toml", "--quiet", "--set", "train.steps=1"}, folder.path());
  int64_t runs = 0;
  for (const auto& entry : fs::directory_iterator(folder / "runs")) {
    CHECK_THAT(entry.path().filename().string(), Catch::StartsWith("config-20"));
    ++runs;
  }
  CHECK(runs == 2);
}

TEST_CASE("a quiet run prints nothing on stderr, and --json prints only JSON on stdout") {
  const TinyFolder folder;
  const Outcome quiet = succeed({"train", "config.toml", "--quiet", "--out", "q"}, folder.path());
  CHECK(quiet.err == "");
  const Outcome json = succeed({"train", "config.toml", "--json", "--out", "j"}, folder.path());
  CHECK(Json::parse(json.out)["run"] == "j");
  CHECK_THAT(json.err, Contains("memory: about ") && Contains("activations "));
  CHECK(json_of({"evaluate", "j", "--json"}, folder.path())["examples"] == 16);
}

TEST_CASE("more threads than cores, and longer data than in training, are warnings") {
  const TinyFolder folder;
  const std::string many = std::to_string(threads() + 1);
  const Outcome trained = succeed({"train", "config.toml", "--out", "run", "--threads", many,
                                   "--set", "model.max_length=64", "train.steps=1"},
                                  folder.path());
  CHECK_THAT(trained.err, Contains("warning: " + many + " threads") && Contains("--threads"));
  const std::vector<std::string> evaluate{"evaluate", "run", "--set", "data.length=32"};
  CHECK_THAT(succeed(evaluate, folder.path()).err,
             Contains("warning") && Contains("up to 32 tokens") && Contains("at most 16"));
  CHECK(succeed({"evaluate", "run", "--quiet", "--set", "data.length=32"}, folder.path()).err ==
        "");
  CHECK(succeed({"evaluate", "run", "--set", "data.length=12"}, folder.path()).err == "");
  const Outcome longer = run({"evaluate", "run", "--set", "data.length=65"}, folder.path());
  CHECK(longer.code == 2);
  CHECK_THAT(longer.err, Contains("up to 65") && Contains("model.max_length = 64") &&
                             Contains("--set model.max_length=65"));
}

TEST_CASE("the command line overrides the environment, which overrides the file") {
  const TinyFolder folder;
  write_text(folder / "seeded.toml", std::string(tiny_config) + "\n[attention]\n");
  const auto seed = [&](std::vector<std::string> more, const char* file,
                        const std::map<std::string, std::string>& environment) {
    std::vector<std::string> arguments = {"config", "dump", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string text = succeed(arguments, folder.path(), environment).out;
    const size_t at = text.rfind("\nseed = ");
    return text.substr(at + 8, text.find('\n', at + 1) - at - 8);
  };
  std::string text = tiny_config;
  text.insert(text.find("steps = 20"), "seed = 1\n");
  write_text(folder / "c.toml", text);
  CHECK(seed({}, "config.toml", {}) == "0");
  CHECK(seed({}, "c.toml", {}) == "1");
  CHECK(seed({}, "c.toml", {{"LONGHAND_SEED", "2"}}) == "2");
  CHECK(seed({"--set", "train.seed=3"}, "c.toml", {{"LONGHAND_SEED", "2"}}) == "3");
  CHECK(seed({"--seed", "4", "--set", "train.seed=3"}, "c.toml", {}) == "4");
  CHECK(run({"config", "dump", "c.toml"}, folder.path(), {{"LONGHAND_SEED", "x"}}).code == 2);
  CHECK(run({"config", "dump", "c.toml"}, folder.path(), {{"LONGHAND_THREADS", "x"}}).code == 2);
}

TEST_CASE("config dump prints every option, and reproduces its own output") {
  const TinyFolder folder;
  const std::string dumped = succeed({"config", "dump", "config.toml"}, folder.path()).out;
  CHECK_THAT(dumped, Contains("d_model = 16\n") && Contains("vocabulary = ") &&
                         Contains("type = \"softmax\"\n") && Contains("weight_decay = "));
  write_text(folder / "dumped.toml", dumped);
  CHECK(succeed({"config", "dump", "dumped.toml"}, folder.path()).out == dumped);
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  CHECK(data::read_text_file(folder / "run/config.toml") == dumped);

  // Missing data is no error.
  const Outcome outcome = succeed(
      {"config", "dump", "config.toml", "--set", "data.task=tokens", "--set", "data.path=none.h5"},
      folder.path());
  CHECK_THAT(outcome.out, Contains("/none.h5\"\n") && Contains("d_model = 16"));
  CHECK_THAT(outcome.err, Contains("none.h5"));
}

TEST_CASE("options of another type are ignored, with a message") {
  const TinyFolder folder;
  write_text(folder / "c.toml", std::string(tiny_config) + "[attention]\ntype='linformer'\nk=4\n");
  const Outcome outcome =
      succeed({"config", "dump", "c.toml", "--set", "attention.type=linear"}, folder.path());
  CHECK_THAT(outcome.err, Contains("attention.k"));
  CHECK_THAT(outcome.out, !Contains("\nk = "));
}

TEST_CASE("the example configurations are valid") {
  const TemporaryDirectory folder;
  write_text(folder / "text", some_text());
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += std::to_string(i % 2) + "\ttext " + std::to_string(i) + "\n";
  write_text(folder / "lines.tsv", lines);
  const std::map<std::string, std::vector<std::string>> data = {
      {"mqar", {}},
      {"listops", {"data.train_size=40", "data.validation_size=10", "data.test_size=10"}},
      {"copy", {}},
      {"variants_by_layer", {}},
      {"hybrid", {}},
      {"text_lm", {"data.path=text", "model.max_length=64"}},
      {"text_classification", {"data.path=lines.tsv", "model.max_length=64"}}};
  for (const auto& [name, assignments] : data) {
    std::vector<std::string> arguments = {"config", "dump",
                                          std::string(LONGHAND_CONFIGS) + "/" + name + ".toml"};
    for (const std::string& assignment : assignments)
      arguments.insert(arguments.end(), {"--set", assignment});
    INFO(name);
    const std::string dumped = succeed(arguments, folder.path()).out;
    CHECK_THAT(dumped, Contains(name == "variants_by_layer" ? "type = [\"window\", \"linear\"]"
                                : name == "hybrid" ? "type = [\"conv\", \"window\", \"linear\"]"
                                                   : "type = \"softmax\""));
    if (name == "text_lm") CHECK_THAT(dumped, Contains("\nlength = 64\n"));
    // With every variant that can be causal: no option prevents it.
    for (const std::string& variant : attention::names()) {
      if (name == "text_lm" && !attention::capabilities(variant).causal) continue;
      INFO(variant);
      auto other = arguments;
      other.insert(other.end(), {"--set", "attention.type=" + variant});
      if (attention::capabilities(variant).causal_only)
        other.insert(other.end(), {"--set", "model.causal=true"});
      // The windows of hybrid are narrower than chunks.
      if (variant == "eva") other.insert(other.end(), {"--set", "attention.chunk=4"});
      // It takes a head for each of its parts.
      if (variant == "parallel") other.insert(other.end(), {"--set", "model.heads=2"});
      // The text_lm model has rotary positions, which rotate queries and keys.
      if (name == "text_lm" && !attention::capabilities(variant).uses_queries_and_keys) {
        const Outcome refused = run(other, folder.path());
        CHECK(refused.code != 0);
        CHECK_THAT(refused.err, Contains("model.positions") && Contains("no effect"));
        other.insert(other.end(), {"--set", "model.positions=learned"});
      }
      succeed(other, folder.path());
    }
  }
  for (const std::string name :
       {"selective_copy", "induction", "parity", "mqar_stacked", "mqar_overwrite"})
    CHECK_THAT(succeed({"config", "dump", std::string(LONGHAND_CONFIGS) + "/" + name + ".toml"},
                       folder.path())
                   .out,
               Contains("task = \"" + name + "\""));
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(LONGHAND_CONFIGS))
    if (entry.is_regular_file()) files.insert(entry.path().stem());
  CHECK(files == std::set<std::string>{"copy", "fashion_mnist", "hybrid", "induction", "listops",
                                       "mqar", "mqar_mixture", "mqar_overwrite", "mqar_stacked",
                                       "mqar_zoology", "parity", "selective_copy",
                                       "text_classification", "text_lm", "variants",
                                       "variants_by_layer"});
}

TEST_CASE("evaluate reports a mixture segment by segment, also at lengths never trained on") {
  const TinyFolder folder;
  const Json trained = json_of({"train",  LONGHAND_CONFIGS "/copy.toml",
                                "--out",  "run",
                                "--json", "--quiet",
                                "--set",  "train.steps=2",
                                "--set",  "train.batch_size=4",
                                "--set",  "data.length=[8,12]",
                                "--set",  "data.count=2",
                                "--set",  "data.validation_size=4",
                                "--set",  "data.test_size=[5,6]",
                                "--set",  "model.positions=rotary",
                                "--set",  "model.max_length=32"},
                               folder.path());
  CHECK(trained["status"] == "finished");
  const Json own = json_of({"evaluate", "run", "--json", "--quiet"}, folder.path());
  REQUIRE(own["segments"].size() == 2);
  CHECK(own["segments"][0]["name"] == "length 8, 2 symbols");
  CHECK(own["segments"][0]["length"] == 8);
  CHECK(own["segments"][0]["examples"] == 5);
  CHECK(own["segments"][1]["targets"] == 12);
  CHECK(own["targets"] == 22);
  const double sum =
      10 * own["segments"][0]["loss"].get<double>() + 12 * own["segments"][1]["loss"].get<double>();
  CHECK(own["loss"].get<double>() == Approx(sum / 22));
  const Outcome longer = succeed(
      {"evaluate", "run", "--quiet", "--set", "data.length=[8,16,32]", "--set", "data.test_size=3"},
      folder.path());
  CHECK_THAT(longer.out, Contains("segment        length 32, 2 symbols: loss "));
  const Outcome too_long =
      run({"evaluate", "run", "--quiet", "--set", "data.length=64"}, folder.path());
  CHECK(too_long.code == 2);
  CHECK_THAT(too_long.err, Contains("max_length"));
}

TEST_CASE("evaluate measures the best checkpoint, as training did") {
  const TinyFolder folder;
  const Json trained = json_of(
      {"train", "config.toml", "--json", "--quiet", "--out", "run", "--set", "train.ema_decay=0.5"},
      folder.path());
  const Json result =
      json_of({"evaluate", "run", "--split", "validation", "--json"}, folder.path());
  CHECK(result["peak_memory_bytes"] > 1 << 20);
  CHECK(result["loss"] == trained["best"]["value"]);
  CHECK(result["step"] == trained["best"]["step"]);
  CHECK(result["initialised"].empty());
  CHECK_THAT(succeed({"evaluate", "run"}, folder.path()).out,
             Contains("loss  ") && Contains("accuracy  "));
  CHECK(json_of({"evaluate", "run", "--limit", "5", "--json"}, folder.path())["examples"] == 5);
  CHECK(json_of({"evaluate", "run/checkpoints/last.h5", "--json"}, folder.path())["step"] == 20);
}

TEST_CASE("evaluate under another variant keeps the weights that both have") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run", "--set", "attention.type=performer",
           "--set", "attention.features=8"},
          folder.path());
  const Json own = json_of({"evaluate", "run", "--json"}, folder.path());
  CHECK(own["initialised"].empty());
  CHECK(own["unused"].empty());

  const Json exact =
      json_of({"evaluate", "run", "--json", "--set", "attention.type=softmax"}, folder.path());
  CHECK(exact["attention"] == "softmax");
  CHECK(exact["initialised"].empty());
  CHECK(exact["unused"].size() >= 1);
  CHECK(exact["loss"] != own["loss"]);

  const Json linformer =
      json_of({"evaluate", "run", "--json", "--set", "attention.type=linformer", "attention.k=4"},
              folder.path());
  REQUIRE(linformer["initialised"].size() == 2);
  CHECK_THAT(linformer["initialised"][0].get<std::string>(),
             Contains("blocks.0.attention.kernel.projection"));
  // It has no projections of queries and keys.
  const Json mean =
      json_of({"evaluate", "run", "--json", "--set", "attention.type=mean"}, folder.path());
  CHECK(mean["initialised"].empty());
  CHECK_THAT(mean["unused"].dump(), Contains("blocks.0.attention.query.weight") &&
                                        Contains("blocks.0.attention.key.weight"));
  const Json more =
      json_of({"evaluate", "run", "--json", "--set", "attention.features=16"}, folder.path());
  CHECK(more["initialised"].size() >= 1);
}

TEST_CASE("evaluate fills a table of drop-in variants") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  const Json own = json_of({"evaluate", "run", "--json"}, folder.path());
  const Outcome shown =
      succeed({"evaluate", "run", "--over", "attention.type=softmax,nystrom,performer", "--over",
               "attention.features=4,8", "--draws", "3", "-o", "grid.json"},
              folder.path());
  CHECK_THAT(shown.out, Contains("as trained") && Contains("performer features=8") &&
                            Contains("over draws") && Contains("±") &&
                            Contains("Of 3 variants, ") && !Contains("attention.features"));
  const train::Results results =
      train::results_of_json(data::read_text_file(folder / "grid.json"), "grid.json");
  CHECK(results.kind == "evaluate");
  CHECK_THAT(results.command, Contains("longhand evaluate run --over attention.type=softmax"));
  const train::Table& table = results.table("variants");
  REQUIRE(table.rows.size() == 5);
  CHECK(std::get<double>(table.rows[0][table.column("loss")]) ==
        Approx(own["loss"].get<double>()).epsilon(1e-9));
  CHECK(succeed({"report", "grid.json", "-o", "grid.html"}, folder.path()).code == 0);
  CHECK_THAT(data::read_text_file(folder / "grid.html"), Contains("performer features=8"));

  write_text(folder / "grid.toml", "[[axis]]\nattention.type = [\"softmax\", \"window\"]\n");
  const Outcome latex =
      succeed({"evaluate", "run", "--grid", "grid.toml", "--table", "tex"}, folder.path());
  CHECK_THAT(latex.out, Contains("\\caption{Drop-in variants of run") &&
                            Contains("\\begin{tabular}") && Contains("window"));
  CHECK_THAT(
      succeed({"evaluate", "run", "--grid", "grid.toml", "--table", "csv"}, folder.path()).out,
      Catch::StartsWith("variant,attention_type,examples,draws,loss,loss_low"));
  // Nothing is printed or written unless every variant can stand in.
  const Outcome refused = run({"evaluate", "run", "--over", "attention.type=softmax,linear",
                               "--over", "model.heads=2,3", "-o", "none.json"},
                              folder.path());
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("heads=3: --over: model.heads = 3: expected a divisor"));
  CHECK(refused.out.empty());
  CHECK_FALSE(fs::exists(folder / "none.json"));
  CHECK(run({"evaluate", "run", "--table", "md"}, folder.path()).code == 2);
  CHECK(run({"evaluate", "run", "--over", "attention.type=window", "--table", "pdf"}, folder.path())
            .code == 2);
}

TEST_CASE("evaluate averages the predictions of several runs") {
  const TinyFolder folder;
  for (const std::string seed : {"0", "1"})
    succeed({"train", "config.toml", "--quiet", "--out", seed, "--seed", seed}, folder.path());
  const Outcome shown = succeed({"evaluate", "0", "1", "--limit", "8"}, folder.path());
  CHECK_THAT(shown.out, Contains("mean of members") && Contains("ensemble - mean of members") &&
                            Contains("8 examples") && Contains("The ensemble of 2 has accuracy"));
  const Json one = json_of({"evaluate", "0", "1", "--json", "--threads", "1"}, folder.path());
  const Json two = json_of({"evaluate", "0", "1", "--json", "--threads", "2"}, folder.path());
  CHECK(one["tables"] == two["tables"]);
  // Words after --set are assignments.
  CHECK_THAT(
      succeed({"evaluate", "0", "1", "--set", "data.length=12", "data.test_size=4"}, folder.path())
          .out,
      Contains("4 examples"));
  CHECK(run({"evaluate", "0", "1", "--over", "attention.type=window"}, folder.path()).code == 2);
  CHECK_THAT(run({"evaluate", "0", "2"}, folder.path()).err, Contains("no run directory 2"));
}

TEST_CASE("data that was made, stored and read again is the same") {
  const TinyFolder folder;
  const std::vector<std::string> options = {"--set",        "data.length=16", "--set",
                                            "data.count=4", "--set",          "data.train_size=64"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  };
  const Json made = json_of(
      with({"data", "make", "copy", "-o", "copy.h5", "--count", "16", "--json"}), folder.path());
  CHECK(made["examples"]["train"] == 16);
  const Json hashed =
      json_of(with({"data", "hash", "copy", "--count", "16", "--json"}), folder.path());
  const Json stored =
      json_of({"data", "hash", "tokens", "--set", "data.path=copy.h5", "--json"}, folder.path());
  CHECK(stored["splits"] == hashed["splits"]);
  const Json other = json_of(
      with({"data", "hash", "copy", "--count", "16", "--json", "--seed", "1"}), folder.path());
  CHECK(other["splits"]["train"] != hashed["splits"]["train"]);

  // A model is evaluated on a file as on the task itself.
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  const Json task = json_of({"evaluate", "run", "--json", "--limit", "16"}, folder.path());
  const Json file = json_of(
      {"evaluate", "run", "--json", "--set", "data.task=tokens", "--set", "data.path=copy.h5"},
      folder.path());
  CHECK(file["loss"] == task["loss"]);
  CHECK(file["accuracy"] == task["accuracy"]);

  const Json shown =
      json_of(with({"data", "show", "copy", "--count", "2", "--json"}), folder.path());
  REQUIRE(shown["examples"].size() == 2);
  CHECK(shown["examples"][0]["tokens"].size() == 16);
  CHECK_THAT(succeed(with({"data", "show", "copy"}), folder.path()).out, Contains("targets: "));

  // Those of a run: its options, and its tokens with its predictions.
  const Json of_run = json_of({"data", "show", "run", "--split", "test", "--json"}, folder.path());
  CHECK(of_run["task"] == "copy");
  REQUIRE(of_run["examples"].size() == 3);
  CHECK(of_run["examples"][0]["tokens"].size() == 16);
  const std::string lines =
      succeed({"predict", "run", "--tokens", "--limit", "3"}, folder.path()).out;
  std::istringstream in(lines);
  for (size_t i = 0; i < 3; ++i) {
    std::string line;
    REQUIRE(std::getline(in, line));
    CHECK(Json::parse(line)["tokens"] == of_run["examples"][i]["tokens"]);
  }
  CHECK(run({"predict", "run", "--tokens", "-o", "p.npz"}, folder.path()).code == 2);
  const Json other_seed =
      json_of({"data", "show", "run", "--split", "test", "--seed", "5", "--json"}, folder.path());
  CHECK(other_seed["examples"] != of_run["examples"]);
}

TEST_CASE("only the splits that are used need to be in a file") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  data::Hdf5Writer writer;
  writer.put("test/tokens", Tensor::full({8, 16}, 1, DType::i32));
  writer.put("test/targets", Tensor::full({8, 16}, 2, DType::i32));
  writer.put("train/tokens", Tensor::full({8, 16}, -1, DType::i32));  // unused, and never read
  data::write_file_durably(folder / "test.h5", writer.image());
  const std::vector<std::string> on_file = {"--set", "data.task=tokens", "data.path=test.h5"};
  std::vector<std::string> evaluate = {"evaluate", "run", "--json"};
  evaluate.insert(evaluate.end(), on_file.begin(), on_file.end());
  CHECK(json_of(evaluate, folder.path())["examples"] == 8);
  const Json shown =
      json_of({"data", "show", "tokens", "--split", "test", "--json", "--set", "data.path=test.h5"},
              folder.path());
  CHECK(shown["examples"].size() == 3);
  const Json hashed =
      json_of({"data", "hash", "tokens", "--split", "test", "--json", "--set", "data.path=test.h5"},
              folder.path());
  CHECK(hashed["splits"].size() == 1);
  // Splits that are used must exist.
  evaluate.insert(evaluate.end(), {"--split", "validation"});
  const Outcome missing = run(evaluate, folder.path());
  CHECK(missing.code == 3);
  CHECK_THAT(missing.err, Contains("test.h5") && Contains("validation"));
}

TEST_CASE("data check lists what files hold, data show their texts and labels") {
  const TemporaryDirectory folder;
  write_text(folder / "a.csv",
             "text,label\ngood,pos\n\"bad,\nreally\",neg\nfine,pos\nawful,neg\nnice,pos\n");
  const std::vector<std::string> columns = {"--set", "data.label_name=label",
                                            "data.text_name=text"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), columns.begin(), columns.end());
    return arguments;
  };
  const std::string listed =
      succeed(with({"data", "check", "text_classification", "a.csv"}), folder.path()).out;
  CHECK_THAT(listed, Contains("a.csv: text_classification") && Contains("3 examples, hash ") &&
                         Contains("lengths     ") && Contains("vocabulary  ") &&
                         Contains("labels      neg "));
  const Json json =
      json_of(with({"data", "check", "text_classification", "a.csv", "--json"}), folder.path());
  CHECK(json["splits"]["train"]["examples"] == 3);
  CHECK(json["splits"]["test"]["shared_with_train"] == 0);
  const std::vector<std::string> show =
      with({"data", "show", "text_classification", "--count", "9", "--set", "data.path=a.csv"});
  CHECK_THAT(succeed(show, folder.path()).out,
             Contains(" (pos)\n") &&
                 (Contains("\nfine\n") || Contains("\nnice\n") || Contains("\ngood\n")));

  std::vector<std::string> numbers = show;
  numbers.emplace_back("--tokens");
  CHECK_THAT(succeed(numbers, folder.path()).out, !Contains("\nfine\n") && !Contains("\ngood\n"));

  write_text(folder / "b.jsonl",
             "{\"tokens\": [1, 2], \"targets\": [0, 1]}\n{\"tokens\": [1], \"targets\": [1]}\n"
             "{\"tokens\": [3], \"targets\": [-100]}\n");
  CHECK_THAT(succeed({"data", "check", "tokens", "b.jsonl"}, folder.path()).out,
             Contains("tokens below 4, one class below 2 per token"));

  // Numbers with gaps: only where most of a large vocabulary does not occur.
  const auto remarked = [&](int64_t largest) {
    std::string lines = "tokens,targets\n";
    for (int i = 0; i < 8; ++i) lines += std::to_string(i) + " 9," + std::to_string(i % 2) + "\n";
    write_text(folder / "gaps.csv", lines + std::to_string(largest) + ",0\n");
    return json_of({"data", "check", "tokens", "gaps.csv", "--json"}, folder.path());
  };
  CHECK_FALSE(remarked(40000).contains("remark"));
  CHECK_THAT(remarked(2'000'000'000)["remark"].get<std::string>(),
             Contains("largest token is 2,000,000,000") && Contains("different ones") &&
                 Contains("2,000,000,001 rows") && Contains("numpy.unique"));
  CHECK_THAT(succeed({"data", "check", "tokens", "gaps.csv"}, folder.path()).out,
             Contains("remark: the largest token"));

  const Outcome none = run({"data", "check", "tokens", "none.jsonl"}, folder.path());
  CHECK(none.code == 3);
  CHECK_THAT(none.err, Contains("none.jsonl") && !Contains("--set data.path"));
}

TEST_CASE("a run on generated ListOps is evaluated on published files") {
  const TinyFolder folder;
  std::string config = tiny_config;
  const size_t begin = config.find("[data]"), end = config.find("[train]");
  config.replace(begin, end - begin,
                 "[data]\ntask = \"listops\"\nmin_length = 3\nmax_length = 20\nmax_args = 5\n"
                 "train_size = 64\nvalidation_size = 16\ntest_size = 16\n");
  write_text(folder / "config.toml", config);
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  std::filesystem::create_directory(folder / "lra");
  write_text(folder / "lra/basic_test.tsv",
             "Source\tTarget\n[MAX 1 2 ]\t2\n( ( ( [SM 5 ) 7 ) ] )\t2\n");
  const Json found =
      json_of({"evaluate", "run", "--json", "--quiet", "--set", "data.path=lra"}, folder.path());
  CHECK(found["examples"] == 2);
}

TEST_CASE("a run is resumed in another folder, and refuses data that have changed") {
  const TinyFolder folder;
  succeed({"data", "make", "copy", "--set", "data.length=16", "data.count=4", "data.train_size=64",
           "data.validation_size=16", "data.test_size=16", "-o", "data.h5", "--quiet"},
          folder.path());
  const std::vector<std::string> on_file = {"--set", "data.task=tokens", "data.path=data.h5"};
  std::vector<std::string> train = {"train", "config.toml", "--quiet", "--out", "run"};
  train.insert(train.end(), on_file.begin(), on_file.end());
  succeed(train, folder.path());
  std::filesystem::create_directory(folder / "elsewhere");
  succeed({"train", "--resume", "../run", "--quiet", "--set", "train.steps=24"},
          folder / "elsewhere");
  succeed({"evaluate", "../run", "--quiet"}, folder / "elsewhere");

  succeed(
      {"data", "make", "copy", "--set", "data.length=16", "data.count=4", "data.train_size=64",
       "data.validation_size=16", "data.test_size=16", "-o", "data.h5", "--quiet", "--seed", "1"},
      folder.path());
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"evaluate", "run", "--quiet"},
        {"evaluate", "run", "--quiet", "--over", "attention.type=softmax,linear"},
        {"evaluate", "run", "run", "--quiet"},
        {"predict", "run", "--quiet"},
        {"train", "--resume", "run", "--quiet", "--set", "train.steps=28"}}) {
    INFO(command[0] << " " << command.size());
    const Outcome refused = run(command, folder.path());
    CHECK(refused.code == 3);
    CHECK_THAT(refused.err, Contains("is from a run on other data") &&
                                Contains("data.h5 have the hash") && Contains("--accept-data"));
    std::vector<std::string> accepting = command;
    accepting.insert(accepting.begin() + 1, "--accept-data");
    succeed(accepting, folder.path());
  }
}

TEST_CASE("data check listops recomputes targets") {
  const TemporaryDirectory folder;
  write_text(folder / "a.tsv", "Source\tTarget\n[MAX 1 2 ]\t2\n( ( ( [SM 5 ) 7 ) ] )\t2\n");
  CHECK_THAT(succeed({"data", "check", "listops", "a.tsv"}, folder.path()).out,
             Contains("2 of 2 targets agree"));
  CHECK(json_of({"data", "check", "listops", "a.tsv", "--json"}, folder.path())["agreeing"] == 2);
}

TEST_CASE("generate continues a text") {
  const TemporaryDirectory folder;
  write_text(folder / "text", some_text());
  std::string config = tiny_config;
  config.replace(config.find("task = \"copy\"\nlength = 16\ncount = 4\ntrain_size = 64\n"
                             "validation_size = 16\ntest_size = 16"),
                 std::string("task = \"copy\"\nlength = 16\ncount = 4\ntrain_size = 64\n"
                             "validation_size = 16\ntest_size = 16")
                     .size(),
                 "task = \"text_lm\"\npath = \"text\"");
  config.replace(config.find("d_mlp = 16"), 10, "d_mlp = 16\nmax_length = 16");
  write_text(folder / "c.toml", config);
  succeed({"train", "c.toml", "--quiet", "--out", "run"}, folder.path());
  // The model is all in the checkpoint; the text is no longer needed.
  fs::remove(folder / "text");
  const auto text = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"generate", "run", "--tokens", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return succeed(arguments, folder.path()).out;
  };
  const std::string one = text({"--prompt", "line 1"});
  CHECK_THAT(one, Catch::StartsWith("line 1"));
  CHECK(one.size() == 46);  // more than the context of the model
  CHECK(text({"--prompt", "line 1"}) == one);
  CHECK(text({"--prompt", "line 1", "--seed", "1"}) != one);
  CHECK(text({"--prompt", "line 1", "--threads", "2"}) == one);
  const std::string likeliest = text({"--prompt", "line 1", "--temperature", "0"});
  CHECK(text({"--prompt", "line 1", "--top-k", "1", "--seed", "9"}) == likeliest);
  CHECK(text({}).size() == 40);
  const Json json =
      json_of({"generate", "run", "--prompt", "line 1", "--tokens", "40", "--json"}, folder.path());
  REQUIRE(json["bytes"].size() == 40);
  CHECK(json["prompt"] == "line 1");
  CHECK(json["bytes"][0] == static_cast<unsigned char>(one[6]));
}

TEST_CASE("variants are listed with their capabilities") {
  const TemporaryDirectory folder;
  const Outcome table = succeed({"variants"}, folder.path());
  const Json json = json_of({"variants", "--json"}, folder.path())["variants"];
  REQUIRE(json.size() == attention::names().size());
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string name = attention::names()[i];
    CHECK(json[i]["name"] == name);
    CHECK(json[i]["causal"] == attention::capabilities(name).causal);
    CHECK_THAT(table.out, Contains(name));
  }
}

TEST_CASE("check attention counts the checks of each variant that passed") {
  const TemporaryDirectory folder;
  const std::string out =
      succeed({"check", "attention", "--variant", "none", "--check", "shapes", "--check", "masks"},
              folder.path())
          .out;
  std::istringstream lines(out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK_THAT(line, Catch::StartsWith("none ") && Contains("   2 of   2  "));
  CHECK_THAT(out, Contains("4 of 4 checks passed") && !Contains("note: "));
  CHECK_THAT(
      succeed({"check", "attention", "--variant", "random", "--check", "masks"}, folder.path()).out,
      Contains("note: random: no check compares it with its formula"));
}

TEST_CASE("checkpoint inspect lists what a checkpoint holds") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  const std::string file = "run/checkpoints/last.h5";
  const Json json = json_of({"checkpoint", "inspect", file, "--json"}, folder.path());
  CHECK(json["digest"] == "ok");
  CHECK(json["step"] == 20);
  CHECK(json["config"] == data::read_text_file(folder / "run/config.toml"));
  const auto names = json["model"];
  CHECK(std::any_of(names.begin(), names.end(), [](const Json& tensor) {
    return tensor["name"] == "blocks.0.attention.query.weight" &&
           tensor["shape"] == Json::array({16, 16}) && tensor["dtype"] == "f32";
  }));
  CHECK_THAT(succeed({"checkpoint", "inspect", file}, folder.path()).out,
             Contains("digest   ok") && Contains("blocks.0.attention.query.weight"));
}

TEST_CASE("help and version") {
  const TinyFolder folder;
  CHECK_THAT(succeed({"--version"}, folder.path()).out, Catch::StartsWith("longhand "));
  CHECK_THAT(succeed({"--version"}, folder.path()).out, Contains("micro-kernels tested: baseline"));
  const Json about = json_of({"--version", "--json"}, folder.path());
  CHECK(about["version"].is_string());
  CHECK(about["instruction_sets"]["available"][0] == "baseline");
  CHECK(about["micro_kernels"]["wrong"].empty());
  // Runs and results say the same of what made them.
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  const Json ran = Json::parse(read_text(folder / "run/summary.json"))["provenance"],
             result = json_of({"analyse", "landmarks", "--draws", "2", "--json"}, folder.path());
  CHECK(ran == result["provenance"]);
  for (const char* const what : {"commit", "compiler", "cpu", "flags", "libraries"}) {
    CAPTURE(what);
    CHECK_FALSE(about[what].get<std::string>().empty());
    CHECK(ran[what] == about[what]);
  }
  CHECK_THAT(ran["flags"].get<std::string>(), Contains("-ffp-contract=off"));
  CHECK_THAT(ran["libraries"].get<std::string>(), Contains("OpenBLAS 0.") && Contains("HDF5 1."));
  const Outcome unknown = run({"--version"}, folder.path(), {{"LONGHAND_ISA", "sse9"}});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("LONGHAND_ISA: expected baseline, avx2 or avx512"));
  CHECK_THAT(succeed({"--help"}, folder.path()).out, Contains("Exit codes") && Contains("train"));
  const std::vector<std::vector<std::string>> commands = {
      {"train"},         {"evaluate"},       {"generate"},
      {"variants"},      {"checkpoint"},     {"checkpoint", "inspect"},
      {"config"},        {"config", "dump"}, {"data"},
      {"data", "make"},  {"data", "show"},   {"data", "hash"},
      {"data", "tasks"}, {"data", "check"},  {"data", "check", "listops"}};
  for (auto command : commands) {
    const std::string last = command.back();
    command.push_back("--help");
    CHECK_THAT(succeed(command, folder.path()).out, Contains("Usage:") && Contains(last));
  }
  CHECK_THAT(succeed({"data", "tasks"}, folder.path()).out, Contains("listops: "));
}

TEST_CASE("OpenBLAS uses the instruction set in use, whatever it has chosen") {
  const TinyFolder folder;
  const auto kernels = [&](const std::string& core, Isa isa) {
    const Json about = Json::parse(
        succeed({"--version", "--json"}, folder.path(),
                {{"OPENBLAS_CORETYPE", core}, {"LONGHAND_ISA", std::string(name_of(isa))}})
            .out);
    const auto machine = about["machine"].get<std::string>();
    const size_t end = machine.find(',');
    return machine.substr(machine.rfind(' ', end) + 1, end - machine.rfind(' ', end) - 1);
  };
  const Isa best = machine_isa();
  for (const std::string core : {"Prescott", "Nehalem"}) {
    CHECK(kernels(core, Isa::baseline) == core);
    if (best >= Isa::avx2) CHECK(kernels(core, Isa::avx2) == "Haswell");
  }
  if (best < Isa::avx512) return;
  CHECK(kernels("Prescott", best) == "SkylakeX");
  CHECK(kernels("Haswell", best) == "SkylakeX");
  CHECK(kernels("Cooperlake", best) == "Cooperlake");
  CHECK(kernels("Haswell", Isa::avx2) == "Haswell");
  // Not only the name is: they give the bits of those kernels.
  const auto losses = [&](const std::string& core) {
    fs::remove_all(folder / "run");
    succeed({"train", "config.toml", "--out", "run", "--quiet"}, folder.path(),
            {{"OPENBLAS_CORETYPE", core}});
    std::vector<double> out;
    std::istringstream lines(read_text(folder / "run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      out.push_back(Json::parse(line).value("loss", 0.0));
    return out;
  };
  const std::vector<double> expected = losses("SkylakeX");
  CHECK(expected.size() > 20);
  CHECK(losses("Prescott") == expected);
}

TEST_CASE("a terminal shows a bar, which is removed at the end") {
  const TinyFolder folder;
  for (const bool colour : {true, false}) {
    std::map<std::string, std::string> environment = {{"TERM", "xterm"}};
    environment["NO_COLOR"] = colour ? "" : "1";
    Program program({"train", "config.toml", "--out", colour ? "a" : "b"}, folder.path(),
                    environment, true);
    const Outcome outcome = program.wait();
    CHECK(outcome.code == 0);
    CHECK_THAT(outcome.err,
               Contains("\r[") && Contains("train 1/20  loss ") && Contains("tokens/s"));
    CHECK_THAT(outcome.err, Contains("\r\x1b[K"));
    CHECK((outcome.err.find("\x1b[32m") != std::string::npos) == colour);
  }
  Program dumb({"train", "config.toml", "--out", "c"}, folder.path(), {{"TERM", "dumb"}}, true);
  const Outcome outcome = dumb.wait();
  CHECK_THAT(outcome.err, Contains("train 1/20  loss ") && !Contains("\x1b"));
  // Lines stay, so that there are few of them: one in five seconds.
  size_t shown = 0;
  for (size_t at = 0; (at = outcome.err.find("/20  loss ", at)) != std::string::npos; ++at) ++shown;
  CHECK(shown < 20);
}
