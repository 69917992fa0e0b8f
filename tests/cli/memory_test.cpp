// Estimates of memory: against measured peaks, and runs that exceed memory are rejected.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "longhand/train/config/memory.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

namespace fs = std::filesystem;
using Assignments = std::vector<std::string>;

/// A run of two steps whose activations take most of its memory.
const std::string large_config = R"(
[model]
d_model = 128
heads = 4
layers = 2
d_mlp = 256
[data]
task = "copy"
length = 128
count = 16
train_size = 1000
validation_size = 32
test_size = 32
[train]
steps = 2
batch_size = 64
)";

std::vector<std::string> with(std::vector<std::string> arguments, const Assignments& assignments) {
  for (const std::string& each : assignments) {
    arguments.emplace_back("--set");
    arguments.push_back(each);
  }
  return arguments;
}

std::string refusal(const fs::path& where, const Assignments& assignments,
                    const std::vector<std::string>& command = {"train", "config.toml", "--out",
                                                               "refused"}) {
  const Outcome outcome = run(with(command, assignments), where);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 2);
  CHECK(!fs::exists(where / "refused"));
  CHECK(outcome.peak_memory < (int64_t{400} << 20));
  return outcome.err;
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("estimates of memory are within 10 % of measured peaks") {
  const std::vector<Assignments> cases = {
      {},
      {"attention.impl=naive"},
      {"attention.type=performer"},
      {"attention.type=window"},
      {"attention.type=none", "model.norm=post"},
      {"attention.type=linear", "model.causal=true"},
      {"model.short_conv=4", "model.output_gate=silu", "model.head_norm=rms_norm",
       "model.qk_norm=rms_norm"},
      {"train.recompute=true", "train.batch_size=128"},
      {"train.micro_batches=4", "train.batch_size=256", "train.eval_batch_size=32"},
      {"model.d_model=512", "train.batch_size=2", "train.ema_decay=0.9"},
      // Logits: of a quarter of the tokens, each of 4096 numbers.
      {"data.task=mqar", "data.length=256", "data.pairs=64", "data.vocabulary=4096",
       "model.d_model=32", "model.layers=1"},
      // Evaluation, which keeps less than training.
      {"attention.type=nystrom", "data.length=512", "train.batch_size=1",
       "train.eval_batch_size=32"},
      {"attention.type=skyformer", "data.length=512", "train.batch_size=1",
       "train.eval_batch_size=32"}};
  const TemporaryDirectory folder;
  write_text(folder / "config.toml", large_config);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json estimate =
        Json::parse(
            succeed(with({"train", "config.toml", "--estimate", "--json"}, cases[i]), folder.path())
                .out)
            .at("memory");
    const std::string out = "run" + std::to_string(i);
    const Outcome outcome =
        succeed(with({"train", "config.toml", "-q", "--out", out}, cases[i]), folder.path());
    const double mib = 1 << 20, estimated = estimate.at("total").get<double>() / mib,
                 measured = static_cast<double>(outcome.peak_memory) / mib;
    CAPTURE(cases[i], estimate.dump(), estimated, measured);
    CHECK(std::abs(estimated - measured) <= 0.1 * measured);
  }
}
#endif

TEST_CASE("a run that exceeds memory is refused before anything is allocated or written") {
  const TemporaryDirectory folder;
  write_text(folder / "config.toml", large_config);
  const Assignments small = {"train.memory_limit=1"};
  const auto refused = [&](Assignments assignments) {
    assignments.insert(assignments.end(), small.begin(), small.end());
    return refusal(folder.path(), assignments);
  };
  CHECK_THAT(refused({"train.batch_size=1000"}),
             Contains("train.batch_size = 1,000 x 128 tokens") &&
                 Contains("train.memory_limit has") && Contains("at most train.batch_size = ") &&
                 Contains("train.micro_batches = "));
  CHECK_THAT(refused({"data.train_size=1000000000"}),
             Contains("data") && Contains("at most data.train_size = "));
  CHECK_THAT(refused({"model.d_model=20000"}), Contains("at most model.d_model = "));
  CHECK_THAT(refused({"model.d_model=1073741824"}), Contains("at most model.d_model = "));
  CHECK_THAT(refused({"model.d_mlp=1073741824"}), Contains("at most model.d_mlp = "));
  CHECK_THAT(refused({"model.layers=100000000"}), Contains("at most model.layers = "));
  CHECK_THAT(refused({"model.layers=1000000000", "train.batch_size=1"}),
             Contains("at most model.layers = "));
  CHECK_THAT(refused({"attention.impl=naive", "data.length=65536", "train.batch_size=1"}),
             Contains("attention.impl = \"tiled\"") && Contains("tokens in a sequence"));

  // What is known only from the data.
  write_text(folder / "ids.csv", "tokens,targets\n1,0\n2000000000,1\n3,0\n4,1\n5,0\n");
  CHECK_THAT(refused({"data.task=tokens", "data.path=ids.csv", "train.batch_size=1"}),
             Contains("model.vocabulary = 2,000,000,001") && Contains("different tokens"));

  // Each alone fits, as the message says.
  const std::string text = refused({"model.layers=100000000"});
  const size_t at = text.find("model.layers = ", text.find("at most"));
  std::string most;
  for (size_t i = at + 15; std::isdigit(text[i]) || text[i] == ','; ++i)
    if (text[i] != ',') most += text[i];
  const auto code_with = [&](int64_t layers) {
    return run(with({"train", "config.toml", "--estimate", "--json"},
                    {"train.memory_limit=1", "model.layers=" + std::to_string(layers)}),
               folder.path())
        .code;
  };
  const Outcome parts = run(with({"train", "config.toml", "--estimate"},
                                 {"train.memory_limit=1", "train.batch_size=1000"}),
                            folder.path());
  CHECK(parts.code == 2);
  CHECK_THAT(parts.out, Contains("activations") && Contains("available"));
  CHECK(code_with(std::stoll(most)) == 0);
  CHECK(code_with(std::stoll(most) * 5 / 4) == 2);  // it is rounded to two digits
}

TEST_CASE("bench refuses what exceeds memory") {
  const TemporaryDirectory folder;
  for (const char* kind : {"step", "attention"})
    CHECK_THAT(run({"bench", kind, "--attention", "softmax", "--length", "1048576", "--tokens",
                    "1073741824", "--repetitions", "1"},
                   folder.path())
                   .err,
               Contains("needs") && Contains("this"));
}
