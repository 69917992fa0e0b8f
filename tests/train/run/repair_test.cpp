// repair(): a run with damaged files in order.
#include "longhand/train/run/repair.h"

#include "longhand/data/file.h"
#include "longhand/train/run/run.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

void flip(const fs::path& path) {
  auto bytes = data::read_file(path);
  bytes[bytes.size() / 2] ^= std::byte{1};
  data::write_file_durably(path, bytes);
}

/// A run of 6 steps that saves after each.
struct Trained {
  TemporaryDirectory dir;
  fs::path path = dir / "run", checkpoints = path / "checkpoints";
  std::map<std::string, std::string> before;

  Trained() {
    Run::create(tiny_run("checkpoint_every = 1\nkeep_every = 4\n"), path)->train();
    before = contents_of(path);
  }
  /// Resumes the run, which must end as it did before.
  void check_resumes() {
    Run::resume(path)->train();
    CHECK(contents_of(path)["checkpoints/last.h5"] == before["checkpoints/last.h5"]);
    const Checkpoint best = load(checkpoints / "best.h5");
    CHECK(best.training.step == load(checkpoints / "last.h5").training.best_step);
    const auto steps = [](const fs::path& run) {
      std::string out;
      for (const Record& r : read_run(run).metrics)
        out += concat_message(r.step, r.split, r.loss, " ");
      return out;
    };
    const fs::path old = dir / "old";
    fs::create_directories(old);
    write_text(old / "metrics.jsonl", before["metrics.jsonl"]);
    CHECK(steps(path) == steps(old));
  }
};

}  // namespace

TEST_CASE("repair changes nothing of a run that is in order, or has not saved anything yet") {
  Trained run;
  const Repair done = repair(run.path);
  CHECK_FALSE(done.changed());
  CHECK(done.step == 6);
  CHECK(done.notes.empty());
  CHECK(contents_of(run.path) == run.before);
  CHECK_THROWS_AS(repair(run.dir / "none"), ConfigError);
  fs::remove_all(run.checkpoints);
  fs::create_directories(run.checkpoints);
  CHECK_THROWS_WITH(repair(run.path),
                    Contains("holds no checkpoint, but the run had done 6 steps"));
  fs::remove(run.path / "summary.json");
  const Repair empty = repair(run.path);
  CHECK_FALSE(empty.changed());
  CHECK_FALSE(empty.step.has_value());
}

TEST_CASE("repair restores last.h5 from the newest valid checkpoint, and the run ends as it did") {
  Trained run;
  for (const bool removed : {false, true}) {
    CAPTURE(removed);
    if (removed)
      fs::remove(run.checkpoints / "last.h5");
    else
      flip(run.checkpoints / "last.h5");
    fs::remove(run.checkpoints / "best.h5");  // else it is of the same step
    const std::string damaged = removed ? "" : data::read_text_file(run.checkpoints / "last.h5");
    const Repair done = repair(run.path);
    CHECK(done.step == 5);
    CHECK(done.last_from.filename() == "previous.h5");
    CHECK(load(run.checkpoints / "last.h5").training.step == 5);
    // The damaged file, the summary and the metrics are kept.
    if (!removed) CHECK(data::read_text_file(run.checkpoints / "last.h5.damaged") == damaged);
    const std::string number = removed ? "-2" : "";
    CHECK(data::read_text_file(run.path / ("summary.json.before-repair" + number)) ==
          run.before["summary.json"]);
    CHECK(data::read_text_file(run.path / ("metrics.jsonl.before-repair" + number))
              .starts_with(run.before["metrics.jsonl"].substr(0, 20)));
    for (const Record& r : read_run(run.path).metrics) CHECK(r.step <= 5);
    CHECK_FALSE(repair(run.path).changed());
    run.check_resumes();
    fs::remove(run.checkpoints / "last.h5.damaged");
    run.before = contents_of(run.path);
  }
}

TEST_CASE("repair restores best.h5 where another checkpoint is of its step, else says so") {
  Trained run;
  const TrainingState state = load(run.checkpoints / "last.h5").training;
  REQUIRE(state.best.has_value());
  flip(run.checkpoints / "best.h5");
  Repair done = repair(run.path);
  CHECK(done.step == 6);
  CHECK(fs::exists(run.checkpoints / "best.h5.damaged"));
  if (state.best_step == 6 || state.best_step == 4) {
    CHECK(load(done.best_from).training.step == state.best_step);
    CHECK(load(run.checkpoints / "best.h5").training.step == state.best_step);
  }
  CHECK(data::read_text_file(run.path / "metrics.jsonl") == run.before["metrics.jsonl"]);
  for (const auto& file : fs::directory_iterator(run.checkpoints))
    if (file.path().filename() != "last.h5") fs::remove(file.path());
  // A state whose best step no file is of.
  Checkpoint last = load(run.checkpoints / "last.h5");
  last.training.best_step = 2;
  save(run.checkpoints / "last.h5", last);
  done = repair(run.path);
  CHECK_FALSE(done.changed());
  REQUIRE(done.notes.size() == 1);
  CHECK_THAT(done.notes[0], Contains("best.h5, of step 2, cannot be restored"));
}

TEST_CASE(
    "repair keeps damaged metrics and summaries, and nothing is changed without a checkpoint") {
  Trained run;
  write_text(run.path / "metrics.jsonl", run.before["metrics.jsonl"] + "{\"st\n");
  write_text(run.path / "summary.json", "{");
  const Repair done = repair(run.path);
  CHECK(done.set_aside.size() == 2);
  CHECK(data::read_text_file(run.path / "metrics.jsonl") == run.before["metrics.jsonl"]);
  CHECK(data::read_text_file(run.path / "summary.json.damaged") == "{");
  CHECK(fs::exists(run.path / "metrics.jsonl.damaged"));
  CHECK_FALSE(repair(run.path).changed());

  for (const auto& file : fs::directory_iterator(run.checkpoints)) flip(file.path());
  const auto damaged = contents_of(run.path);
  const std::string message = message_of<DataError>([&] { repair(run.path); });
  CHECK_THAT(message, Contains("no checkpoint is valid, and nothing was changed") &&
                          Contains("last.h5 is damaged") && Contains("previous.h5 is damaged"));
  CHECK(contents_of(run.path) == damaged);
}
