// model.dtype = "f64": training, resuming and evaluating in double precision.
#include <cmath>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/run/run_record.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;

namespace {

void train_in(const TinyFolder& folder, const std::string& out, std::vector<std::string> sets) {
  std::vector<std::string> arguments = {"train", "config.toml", "--quiet", "--out", out, "--set"};
  arguments.insert(arguments.end(), sets.begin(), sets.end());
  const Outcome outcome = run(arguments, folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
}

}  // namespace

TEST_CASE("the program trains in f64, as in f32 up to rounding") {
  const TinyFolder folder;
  const std::string variant = GENERATE("softmax", "performer");
  CAPTURE(variant);
  train_in(folder, "f32", {"attention.type=" + variant});
  train_in(folder, "f64", {"attention.type=" + variant, "model.dtype=f64"});
  const auto single = train::read_run(folder / "f32"), twice = train::read_run(folder / "f64");
  REQUIRE(single.metrics.size() == twice.metrics.size());
  bool any_differs = false;
  for (size_t i = 0; i < single.metrics.size(); ++i) {
    const double a = single.metrics[i].loss, b = twice.metrics[i].loss;
    CHECK(std::abs(a - b) <= 1e-5 * b);
    any_differs = any_differs || a != b;
  }
  CHECK(any_differs);  // by the rounding of f32

  const train::Checkpoint last = train::load(folder / "f64/checkpoints/last.h5");
  for (const auto* const tensors : {&last.model, &last.optimizer})
    for (const auto& [name, tensor] : *tensors) {
      INFO(name);
      CHECK(tensor.dtype() != DType::f32);
    }

  train_in(folder, "resumed", {"attention.type=" + variant, "model.dtype=f64", "train.steps=10"});
  REQUIRE(run({"train", "--resume", "resumed", "--quiet", "--set", "train.steps=20"}, folder.path())
              .code == 0);
  CHECK(read_text(folder / "resumed/checkpoints/last.h5") ==
        read_text(folder / "f64/checkpoints/last.h5"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"evaluate", "f64"}, {"predict", "f64", "-o", "p.jsonl"}}) {
    const Outcome outcome = run(command, folder.path());
    INFO(outcome.err);
    CHECK(outcome.code == 0);
  }
}

TEST_CASE("f64 needs twice the memory, and no benchmark") {
  const TinyFolder folder;
  const auto parameters = [&](const std::string& dtype) {
    const Outcome outcome = run({"train", "config.toml", "--estimate", "--json", "--set",
                                 "model.dtype=" + dtype, "model.layers=16", "model.d_model=256"},
                                folder.path());
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    const size_t at = outcome.out.find("\"gradients\":");
    REQUIRE(at != std::string::npos);
    return std::stod(outcome.out.substr(at + 12));
  };
  CHECK(parameters("f64") == 2 * parameters("f32"));
  const Outcome bench = run({"bench", "step", "--set", "model.dtype=f64"}, folder.path());
  CHECK(bench.code == 2);
  CHECK_THAT(bench.err, Catch::Contains("model.dtype") && Catch::Contains("f32"));
}
