// longhand train --init-from and --distill-from, also in sweeps.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A folder with a trained run, `teacher`.
class TaughtFolder : public TinyFolder {
 public:
  TaughtFolder() {
    REQUIRE(run({"train", "config.toml", "--quiet", "--out", "runs/teacher"}, path()).code == 0);
  }
};

}  // namespace

TEST_CASE("training starts from another run and learns from it") {
  const TaughtFolder folder;
  const Outcome outcome =
      run({"train", "config.toml", "--set", "attention.type=linformer", "attention.k=4",
           "train.distill_outputs=0.5", "train.init_checkpoint=last", "--init-from", "runs/teacher",
           "--distill-from", "runs/teacher/checkpoints/best.h5", "--out", "new"},
          folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const fs::path teacher = fs::canonical(folder / "runs/teacher");
  CHECK_THAT(
      outcome.err,
      Contains("initialised from " + (teacher / "checkpoints/last.h5").string() + " (step 20): ") &&
          Contains(" 2 new, 0 unused\n") &&
          Contains("new: blocks.0.attention.kernel.{projection_k,projection_v}") &&
          Contains("learning from " + (teacher / "checkpoints/best.h5").string()));
  const Json summary = Json::parse(data::read_text_file(folder / "new/summary.json"));
  CHECK(summary["init_from"]["digest"] == train::stored_digest(teacher / "checkpoints/last.h5"));
  CHECK(summary["init_from"]["initialised"].size() == 2);
  CHECK(summary["distill_from"]["digest"] == train::stored_digest(teacher / "checkpoints/best.h5"));
  CHECK(summary["train"]["terms"].size() == 3);
  CHECK_THAT(data::read_text_file(folder / "new/config.toml"),
             Contains("init_from = \"" + teacher.string() + "\"\n"));
  // Other commands do not need the source.
  fs::remove_all(folder / "runs");
  CHECK(run({"evaluate", "new"}, folder.path()).code == 0);
}

TEST_CASE("a source that does not fit is one error, and nothing is written") {
  const TaughtFolder folder;
  const auto error = [&](const std::string& flag, const std::string& set) {
    const Outcome outcome =
        run({"train", "config.toml", flag, "runs/teacher", "--set", set, "--out", "new"},
            folder.path());
    CHECK(outcome.code == 2);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_FALSE(fs::exists(folder / "new"));
    return outcome.err;
  };
  CHECK_THAT(error("--init-from", "model.d_model=32"),
             Contains("model.d_model is 16 there and 32 here"));
  CHECK_THAT(error("--distill-from", "data.symbols=9"), Contains("the teacher has model."));
  CHECK_THAT(error("--init-from", "train.init_checkpoint=none"),
             Contains("has no checkpoint \"none\""));
}

TEST_CASE("a sweep over variants starts each from the same run") {
  const TaughtFolder folder;
  fs::create_directories(folder / "sweeps");
  fs::rename(folder / "runs", folder / "sweeps/runs");
  write_text(folder / "sweeps/sweep.toml", R"([sweep]
base = "../config.toml"
set = ["train.steps=2", "train.init_from=runs/teacher"]

[[axis]]
attention.type = ["softmax", "linear"]

[[axis]]
train.distill_from = ["", "runs/teacher"]
)");
  const Outcome dry =
      run({"ablate", "sweeps/sweep.toml", "--out", "out", "--dry-run"}, folder.path());
  INFO(dry.err << dry.out);
  CHECK(dry.code == 0);
  CHECK_THAT(dry.out, Contains("4 cells, 4 to run"));
  const Outcome outcome = run({"ablate", "sweeps/sweep.toml", "--out", "out"}, folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("linear distill_from=teacher"));
  for (const auto& cell : fs::directory_iterator(folder / "out/cells"))
    CHECK(Json::parse(data::read_text_file(cell.path() / "summary.json"))["init_from"]["step"] ==
          20);
  // The sweep in the directory means the same in any folder.
  fs::create_directories(folder / "elsewhere");
  const Outcome status = run({"ablate", "--status", "../out"}, folder / "elsewhere");
  CHECK_THAT(status.out, Contains("4 finished"));
}
