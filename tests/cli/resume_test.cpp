// A run that is interrupted and resumed gives the bits of an uninterrupted one, for every variant
// and any number of threads.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "longhand/attention/registry.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// metrics.jsonl without values that depend on the clock and the machine.
std::vector<std::string> metrics_of(const fs::path& run) {
  std::vector<std::string> out;
  for (const std::string& line : lines_of(run / "metrics.jsonl")) {
    auto record = nlohmann::ordered_json::parse(line);
    record.erase("tokens_per_second");
    record.erase("seconds");
    record.erase("peak_memory_bytes");
    out.push_back(record.dump());
  }
  return out;
}

void check_identical(const nn::StateDict& a, const nn::StateDict& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    INFO(name);
    REQUIRE(b.contains(name));
    CHECK(identical(tensor, b.at(name)));
  }
}

/// Compares checkpoint files: tensors, counters and configuration.
void check_same_bytes(const fs::path& a, const fs::path& b) {
  const std::string x = read_text(a / "checkpoints/last.h5"),
                    y = read_text(b / "checkpoints/last.h5");
  CHECK(!x.empty());
  INFO("last.h5: " << x.size() << " and " << y.size() << " bytes");
  CHECK((x == y));  // in parentheses, so that a failure does not print them
  CHECK(read_text(a / "config.toml") == read_text(b / "config.toml"));
}

void check_identical(const fs::path& a, const fs::path& b) {
  const auto x = train::load(a / "checkpoints/last.h5"), y = train::load(b / "checkpoints/last.h5");
  check_identical(x.model, y.model);
  check_identical(x.optimizer, y.optimizer);
  check_identical(x.ema, y.ema);
  CHECK(x.training == y.training);
  CHECK(metrics_of(a) == metrics_of(b));
}

/// A configuration that uses every kind of randomness and state.
std::string config_for(const std::string& variant) {
  std::string attention = "[attention]\ntype = \"" + variant + "\"\n";
  for (const auto& [key, value] : attention::spec(variant).cases.front())
    attention += key + " = " + to_string(value) + "\n";
  if (variant == "performer" || variant == "rff") attention += "redraw_interval = 7\n";
  std::string text = tiny_config;
  const bool causal = attention::capabilities(variant).causal_only;
  text.insert(text.find("[data]"), std::string("dropout = 0.1\n") +
                                       (causal ? "causal = true\n" : "") + "\n" + attention + "\n");
  text.replace(text.find("steps = 20"), 10, "steps = 30\nema_decay = 0.9\nmicro_batches = 2");
  return text + "schedule = \"cosine\"\nwarmup_steps = 5\n";
}

/// Starts training into `out` and stops it after some steps; retries if it finished before.
Outcome interrupted(std::vector<std::string> arguments, const fs::path& folder,
                    const std::string& out, int signal) {
  arguments.insert(arguments.end(), {"--out", out});
  for (int attempt = 0; attempt < 10; ++attempt) {
    fs::remove_all(folder / out);
    Program program(arguments, folder);
    CHECK(eventually(
        [&] { return program.over() || lines_of(folder / out / "metrics.jsonl").size() >= 5; }));
    program.send(signal);
    const Outcome outcome = program.wait();
    if (outcome.code != 0) return outcome;
  }
  FAIL("it could not be interrupted");
  return {};
}

}  // namespace

TEST_CASE("resuming gives the bits of a run without interruption") {
  const std::string variant = GENERATE(from_range(attention::names()));
  CAPTURE(variant);
  const TemporaryDirectory folder;
  write_text(folder / "c.toml", config_for(variant));
  const Outcome whole = run({"train", "c.toml", "--threads", "1", "--out", "whole"}, folder.path());
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  for (const std::string threads : {"1", "2"}) {
    CAPTURE(threads);
    const std::string out = "parts-" + threads;
    const Outcome stopped =
        interrupted({"train", "c.toml", "--threads", threads}, folder.path(), out, SIGTERM);
    INFO(stopped.err);
    REQUIRE(stopped.code == 75);
    CHECK_THAT(stopped.err, Contains("longhand train --resume " + out));
    const int64_t step = train::load(folder / (out + "/checkpoints/last.h5")).training.step;
    REQUIRE(step > 0);
    REQUIRE(step < 30);
    // As if it had continued after that checkpoint and then been killed.
    std::ofstream(folder / (out + "/metrics.jsonl"), std::ios::app)
        << R"({"step":)" << step + 1 << R"(,"split":"train","loss":9})"
        << "\n{\"step\":1,\"spl";

    // The second one to save memory, which changes the configuration but no other bit.
    std::vector<std::string> arguments = {"train", "--resume", out, "--threads", threads};
    if (threads == "2") arguments.insert(arguments.end(), {"--set", "train.recompute=true"});
    const Outcome resumed = run(arguments, folder.path());
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    check_identical(folder / "whole", folder / out);
    if (threads == "1") check_same_bytes(folder / "whole", folder / out);
  }
}

TEST_CASE("resuming writes options that were not given as a run without interruption does") {
  const TinyFolder folder;
  const bool mixed = GENERATE(false, true);
  const std::vector<std::string> train{
      "train", "config.toml",
      "--set", "train.steps=50",
      "--set", "model.layers=2",
      "--set", mixed ? "attention.type=['window', 'linformer']" : "attention.type=linformer",
      "--set", mixed ? "model.short_conv=4" : "model.short_conv=0",
      "--set", mixed ? "model.output_gate=silu" : "model.output_gate=none"};
  auto arguments = train;
  arguments.insert(arguments.end(), {"--out", "whole"});
  const Outcome whole = run(arguments, folder.path());
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  REQUIRE(interrupted(train, folder.path(), "parts", SIGTERM).code == 75);
  REQUIRE(run({"train", "--resume", "parts"}, folder.path()).code == 0);
  check_same_bytes(folder / "whole", folder / "parts");
}

TEST_CASE("a run stops after a given step, evaluated, and goes on with the same bits") {
  const TinyFolder folder;
  const std::vector<std::string> train{"train", "config.toml", "--set", "train.steps=30",
                                       "train.eval_every=10"};
  const auto with = [&](const std::vector<std::string>& more) {
    auto arguments = train;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, folder.path());
  };
  REQUIRE(with({"--out", "whole"}).code == 0);
  const Outcome part = with({"--out", "parts", "--until", "10"});
  CHECK(part.code == 75);
  CHECK_THAT(part.err, Contains("stopped after step 10"));
  CHECK_THAT(lines_of(folder / "parts" / "metrics.jsonl").back(),
             Contains("\"split\":\"validation\"") && Contains("\"step\":10"));
  CHECK(run({"train", "--resume", "parts", "--until", "11"}, folder.path()).code == 75);
  CHECK(run({"train", "--resume", "parts", "--until", "40"}, folder.path()).code == 0);
  check_same_bytes(folder / "whole", folder / "parts");
  CHECK(with({"--out", "other", "--until", "0"}).code == 2);
}

// Redraws within the steps, and options without which 32 tokens leave a variant little to do.
const std::map<std::string, std::vector<std::string>> options_of_example{
    {"aft", {"kind=local", "window=8"}},
    {"bigbird", {"block=4", "random_blocks=1", "dropout=0.1"}},
    {"eva", {"window=8", "chunk=4"}},
    {"linformer", {"k=16", "sharing=layerwise", "dropout=0.1"}},
    {"moba", {"block=4"}},
    {"nystrom", {"landmarks=8", "conv_kernel=5"}},
    {"parallel", {"parts=window(window=8) | linear(feature_map=taylor2)"}},
    {"path", {"forget=true"}},
    {"performer", {"redraw_interval=10"}},
    {"reformer", {"buckets=8", "window=4"}},
    {"rff", {"guard=clamp", "redraw_interval=10"}},
    {"scatterbrain", {"window=8", "features=64"}},
    {"skyformer", {"landmarks=16", "redraw_interval=10"}},
    {"softmax", {"dropout=0.1"}},
    {"svd", {"rank=4"}},
    {"topk", {"k=4", "dropout=0.1"}},
    {"window", {"window=4", "global_tokens=4", "dropout=0.1"}}};

// Every fourth variant each, so that ctest runs them at the same time.
TEMPLATE_TEST_CASE_SIG(
    "every variant trains from the example, and resuming with its options gives the same bits", "",
    ((int first), first), 0, 1, 2, 3) {
  const auto variants = static_cast<int>(attention::names().size());
  const std::string variant = attention::names()[GENERATE_COPY(range(first, variants, 4))];
  CAPTURE(variant);
  const TemporaryDirectory folder;
  std::vector<std::string> train{"train",
                                 LONGHAND_CONFIGS "/variants.toml",
                                 "--set",
                                 "train.steps=30",
                                 "train.log_every=3",
                                 "data.length=32",
                                 "attention.type=" + variant};
  if (attention::capabilities(variant).causal_only) train.push_back("model.causal=true");
  if (const auto more = options_of_example.find(variant); more != options_of_example.end())
    for (const std::string& option : more->second) train.push_back("attention." + option);
  auto arguments = train;
  arguments.insert(arguments.end(), {"--threads", "2", "--out", "whole"});
  const Outcome whole = run(arguments, folder.path());
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  std::vector<double> losses;
  for (const std::string& line : lines_of(folder / "whole" / "metrics.jsonl"))
    if (const auto record = nlohmann::json::parse(line); record["split"] == "train")
      losses.push_back(record["loss"]);
  REQUIRE(losses.size() == 10);
  CHECK(losses.back() < losses.front() - 0.1);
  // The test above interrupts all variants, with other options.
  if (!options_of_example.contains(variant)) return;

  const Outcome stopped = interrupted(train, folder.path(), "parts", SIGTERM);
  INFO(stopped.err);
  REQUIRE(stopped.code == 75);
  const Outcome resumed = run({"train", "--resume", "parts", "--threads", "1"}, folder.path());
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  check_identical(folder / "whole", folder / "parts");
  check_same_bytes(folder / "whole", folder / "parts");
}

TEST_CASE("a finished run can be made longer") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--out", "long", "--set", "train.steps=40"}, folder.path())
              .code == 0);
  REQUIRE(run({"train", "config.toml", "--out", "parts"}, folder.path()).code == 0);
  const std::string summary = read_text(folder / "parts/summary.json");
  for (const auto& again : {std::vector<std::string>{"train", "--resume", "parts"},
                            {"train", "config.toml", "--out", "parts", "--resume-or-start"}}) {
    const Outcome same = run(again, folder.path());
    CHECK(same.code == 0);
    CHECK_THAT(same.out, Contains("already finished after 20 steps"));
    CHECK_THAT(same.err, Contains("nothing was changed") && Contains("--set train.steps="));
    CHECK(read_text(folder / "parts/summary.json") == summary);
  }
  const Outcome longer =
      run({"train", "--resume", "parts", "--set", "train.steps=40"}, folder.path());
  INFO(longer.err);
  REQUIRE(longer.code == 0);
  check_identical(folder / "long", folder / "parts");
  CHECK(lines_of(folder / "long/config.toml") == lines_of(folder / "parts/config.toml"));
}

TEST_CASE("the same command starts a run and goes on with it, and another replaces it") {
  const TinyFolder folder;
  const std::vector<std::string> train{"train", "config.toml", "--set", "train.steps=50",
                                       "--resume-or-start"};
  REQUIRE(interrupted(train, folder.path(), "parts", SIGTERM).code == 75);
  auto arguments = train;
  arguments.insert(arguments.end(), {"--out", "parts"});
  const Outcome resumed = run(arguments, folder.path());
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_THAT(resumed.err, Contains("resuming after step"));
  REQUIRE(run({"train", "config.toml", "--set", "train.steps=50", "--out", "whole"}, folder.path())
              .code == 0);
  check_same_bytes(folder / "whole", folder / "parts");

  const std::vector<std::string> other{"train", "config.toml", "--seed", "3", "--out", "parts"};
  const auto with = [&](const std::string& flag) {
    auto words = other;
    words.push_back(flag);
    return run(words, folder.path());
  };
  const Outcome refused = with("--resume-or-start");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("seed = 3") && Contains("parts") && Contains("--overwrite"));
  CHECK(with("--overwrite").code == 0);
  CHECK(nlohmann::json::parse(std::ifstream(folder / "parts/summary.json"))["seed"] == 3);
  for (const char* const flag : {"--resume-or-start", "--overwrite"}) {
    const Outcome nameless = run({"train", "config.toml", flag}, folder.path());
    CHECK(nameless.code == 2);
    CHECK_THAT(nameless.err, Contains(flag) && Contains("--out DIR"));
  }
}

TEST_CASE("signals") {
  const TinyFolder folder;
  Program program({"train", "config.toml", "--out", "run", "--set", "train.steps=100000000",
                   "train.eval_every=0"},
                  folder.path());
  const fs::path last = folder / "run/checkpoints/last.h5";
  REQUIRE(eventually(
      [&] { return program.over() || lines_of(folder / "run/metrics.jsonl").size() > 2; }));
  REQUIRE_FALSE(program.over());

  // A second process is refused.
  const Outcome second = run({"train", "--resume", "run"}, folder.path());
  CHECK(second.code == 2);
  CHECK_THAT(second.err, Contains("run is in use by another process"));

  CHECK_FALSE(fs::exists(last));
  program.send(SIGUSR1);
  REQUIRE(eventually([&] { return program.over() || fs::exists(last); }));
  CHECK_FALSE(program.over());
  const int64_t saved = train::load(last).training.step;

  program.send(SIGINT);
  const Outcome outcome = program.wait();
  CHECK(outcome.code == 75);
  CHECK(train::load(last).training.step >= saved);
  const auto summary = nlohmann::json::parse(std::ifstream(folder / "run/summary.json"));
  CHECK(summary["status"] == "stopped");
}

TEST_CASE("a run that was killed before its first checkpoint starts again") {
  const TinyFolder folder;
  const Outcome killed = interrupted({"train", "config.toml", "--set", "train.eval_every=0"},
                                     folder.path(), "run", SIGKILL);
  REQUIRE(killed.code == 128 + SIGKILL);
  const Outcome resumed = run({"train", "--resume", "run"}, folder.path());
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  REQUIRE(
      run({"train", "config.toml", "--set", "train.eval_every=0", "--out", "whole"}, folder.path())
          .code == 0);
  check_identical(folder / "whole", folder / "run");
}
