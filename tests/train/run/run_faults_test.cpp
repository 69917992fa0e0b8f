// Runs that are killed while they are created, whose files are damaged, or cannot be written or locked.
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>

#include "longhand/core/parallel.h"
#include "longhand/data/file.h"
#include "longhand/train/run/run.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/kill_points.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace fs = std::filesystem;

namespace {
int lock_error = 0;  // what flock() fails with, if not 0
}

// In place of that of the C library.
extern "C" int flock(int file, int operation) noexcept {
  if (lock_error == 0) return static_cast<int>(syscall(SYS_flock, file, operation));
  errno = lock_error;
  return -1;
}

namespace {

void damage(const fs::path& file) {
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekg(static_cast<std::streamoff>(fs::file_size(file) / 2));
  const auto byte = static_cast<char>(out.get() ^ 1);
  out.seekp(-1, std::ios::cur);
  out.put(byte);
}

int64_t step_of(const fs::path& file) { return load(file).training.step; }

/// The records of a run without what depends on the clock and the machine.
std::vector<std::string> records_of(const fs::path& run) {
  std::vector<std::string> out;
  for (Record record : read_run(run).metrics) {
    record.seconds.reset();
    record.tokens_per_second = 0;
    record.peak_memory = 0;
    out.push_back(to_json(record));
  }
  return out;
}

/// What a run does after some steps when its process is killed.
Observer die_after(int64_t steps) {
  Observer observer;
  observer.on_progress = [steps](const Progress& p) {
    if (p.step == steps) throw std::runtime_error("killed");
  };
  return observer;
}

void check_same(const fs::path& a, const fs::path& b) {
  CHECK((data::read_file(a / "checkpoints/last.h5") == data::read_file(b / "checkpoints/last.h5")));
  CHECK(records_of(a) == records_of(b));
}

}  // namespace

TEST_CASE("a run that is killed at any system call of its creation can be created or resumed") {
  const TemporaryDirectory dir;
  const fs::path path = dir / "a" / "run";
  int64_t resumable = 0;
  const int64_t killed = kill_at_every_system_call(
      [&] {
        RunRecord run = RunRecord::create(path);
        run.start("[train]\n");
        run.keep();
      },
      [&](int64_t n) {
        CAPTURE(n);
        if (fs::exists(path / "config.toml")) {
          ++resumable;
          CHECK(data::read_text_file(path / "config.toml") == "[train]\n");
          CHECK_FALSE(RunRecord::open(path).resume_point().has_value());
          CHECK_FALSE(RunRecord::holds_run(path));
          RunRecord::create(path).start("[model]\n");
        } else {
          CHECK_THROWS_AS(RunRecord::open(path), ConfigError);
          RunRecord::create(path).start("");
        }
        fs::remove_all(dir / "a");
      });
  if (killed == 0) {
    WARN("processes cannot be traced here");
    return;
  }
  CHECK(killed > 20);
  CHECK(resumable > 0);
  CHECK(resumable < killed);
}

TEST_CASE("a run continues from its newest valid checkpoint, with the same bits") {
  const TemporaryDirectory dir;
  const Config config = tiny_run("checkpoint_every = 1\nkeep_every = 2\n");
  Run::create(config, dir / "whole")->train();
  int64_t step = 0;
  Run::create(config, dir / "run")->train(stop_after(5, step));
  const fs::path files = dir / "run/checkpoints";
  CHECK(step_of(files / "last.h5") == 5);
  CHECK(step_of(files / "previous.h5") == 4);

  SECTION("last.h5 is damaged") {
    damage(files / "last.h5");
    {
      const auto run = Run::resume(dir / "run", {"train.checkpoint_every=0"});
      CHECK(run->step() == 4);
      REQUIRE(run->warnings().size() == 1);
      CHECK_THAT(run->warnings()[0], Contains("last.h5 is damaged") && Contains("continuing from"));
      step = 4;
      CHECK(run->train(stop_after(5, step)) == Stopped::signal);
    }
    // The damaged file has not taken the place of the valid one.
    CHECK(step_of(files / "previous.h5") == 4);
    const auto run = Run::resume(dir / "run", {"train.checkpoint_every=1"});
    CHECK(run->step() == 5);
    CHECK(run->warnings().empty());
    run->train();
    // It is not forgotten.
    CHECK(read_run(dir / "run").summary->warnings.size() == 1);
  }
  SECTION("last.h5 is missing") {
    for (const char* const name : {"last.h5", "step-00000004.h5"}) fs::remove(files / name);
    const auto run = Run::resume(dir / "run");
    CHECK(run->step() == 4);
    run->train();
  }
  SECTION("only one from before an evaluation is left") {
    for (const char* const name : {"last.h5", "previous.h5", "best.h5"}) damage(files / name);
    const auto run = Run::resume(dir / "run");
    CHECK(run->step() == 4);
    CHECK_THAT(run->warnings().at(0), Contains("step-00000004.h5"));
    run->train();
  }
  SECTION("none is valid") {
    const auto before = data::read_file(dir / "run/metrics.jsonl");
    for (const auto& file : fs::directory_iterator(files)) damage(file.path());
    CHECK_THROWS_WITH(Run::resume(dir / "run"),
                      Contains("last.h5 is damaged") && Contains("no other checkpoint"));
    CHECK((data::read_file(dir / "run/metrics.jsonl") == before));
    return;
  }
  check_same(dir / "run", dir / "whole");
}

TEST_CASE("time and memory of a run include those of killed processes") {
  const TemporaryDirectory dir;
  CHECK_THROWS(Run::create(tiny_run(), dir / "run")->train(die_after(5)));
  CHECK(read_run(dir / "run").summary->status == "running");
  CHECK(read_run(dir / "run").summary->step >= 2);  // of the first checkpoint, or a later one
  // As if it had gone on for an hour after its last checkpoint.
  data::append_to_file(
      dir / "run/metrics.jsonl",
      R"({"step":6,"split":"train","seconds":3600,"peak_memory_bytes":9000000000000000})"
      "\n");
  // The work that is done again counts too, also if the next processes are killed before one saves and
  // before the other records.
  Observer dies;
  dies.before_save = [] { throw std::runtime_error("killed"); };
  CHECK_THROWS(Run::resume(dir / "run")->train(dies));
  CHECK_THROWS(Run::resume(dir / "run")->train(die_after(5)));
  CHECK(read_run(dir / "run").metrics.back().step == 4);
  const auto run = Run::resume(dir / "run");
  run->train();
  const RecordedRun read = read_run(dir / "run");
  const Summary& summary = *read.summary;
  CHECK(summary.seconds >= 3600);
  CHECK(summary.seconds < 3700);
  CHECK(summary.peak_memory == 9'000'000'000'000'000);
  CHECK(read.metrics[read.metrics.size() - 2].step == 6);
  CHECK(*read.metrics[read.metrics.size() - 2].seconds >= 3600);
  CHECK(read.metrics.back().peak_memory == summary.peak_memory);
  REQUIRE(summary.processes.size() == 4);
  CHECK(summary.processes[0].step == 6);
  CHECK(summary.processes[1].begin == 4);
  CHECK(summary.processes[3].trained == 2);
}

TEST_CASE("a run that ends before its first step does not block its directory") {
  const TemporaryDirectory dir;
  Observer dies;
  dies.should_stop = []() -> bool { throw std::bad_alloc(); };
  const bool existed = GENERATE(false, true);
  if (existed) fs::create_directory(dir / "run");
  const Config config = tiny_run(existed ? "" : "tensorboard = true\n");
  CHECK_THROWS_AS(Run::create(config, dir / "run")->train(dies), std::bad_alloc);
  CHECK(fs::exists(dir / "run") == existed);
  if (existed) CHECK(fs::is_empty(dir / "run"));

  // What a killed process leaves.
  fs::create_directories(dir / "run/checkpoints");
  for (const char* const name :
       {"config.toml", "checkpoints/.tmp-999999999-last.h5", "sources.json"})
    data::write_file_durably(dir / "run" / name, "{}");
  data::write_file_durably(dir / "run/metrics.jsonl", "");
  CHECK(Run::create(tiny_run(), dir / "run")->train() == Stopped::finished);
  CHECK_FALSE(fs::exists(dir / "run/sources.json"));
  CHECK_FALSE(fs::exists(dir / "run/checkpoints/.tmp-999999999-last.h5"));
  CHECK_THROWS_WITH(Run::create(tiny_run(), dir / "run"),
                    Contains("already holds a run") && Contains("--overwrite"));
}

TEST_CASE("a checkpoint whose counters are beyond the run is refused") {
  const TemporaryDirectory dir;
  Run::create(tiny_run(), dir / "run")->train();
  const fs::path last = dir / "run/checkpoints/last.h5";
  Checkpoint checkpoint = load(last);
  checkpoint.training.step = int64_t{1} << 62;
  checkpoint.training.cursor = {.epoch = int64_t{1} << 59, .batch = 0};  // 8 batches an epoch
  save(last, checkpoint);
  CHECK_THROWS_WITH(Run::resume(dir / "run"), Contains("last.h5") && Contains("run of 6 steps"));
}

TEST_CASE("metrics that cannot be written are a warning, and written later") {
  const TemporaryDirectory dir;
  Run::create(tiny_run(), dir / "whole")->train();
  const auto run = Run::create(tiny_run(), dir / "run");
  const fs::path metrics = dir / "run/metrics.jsonl";
  fs::create_symlink("/dev/full", metrics);
  std::vector<std::string> warnings;
  Observer observer;
  observer.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  observer.on_progress = [&](const Progress& p) {
    if (p.step == 2 || p.step == 6) fs::remove(metrics);
    if (p.step == 4) {
      fs::rename(metrics, dir / "kept");
      fs::create_symlink("/dev/full", metrics);
    }
    if (p.step == 6) fs::rename(dir / "kept", metrics);
  };
  CHECK(run->train(observer) == Stopped::finished);
  REQUIRE(warnings.size() == 2);  // not one for each record
  for (const std::string& warning : warnings)
    CHECK_THAT(warning, Contains("metrics.jsonl") && Contains("No space left"));
  CHECK(read_run(dir / "run").summary->warnings == warnings);
  CHECK(records_of(dir / "run") == records_of(dir / "whole"));
}

TEST_CASE("metrics that can be written only after the last checkpoint are in the file at the end") {
  const TemporaryDirectory dir;
  Run::create(tiny_run(), dir / "whole")->train();
  const auto run = Run::create(tiny_run(), dir / "run");
  const fs::path metrics = dir / "run/metrics.jsonl";
  fs::create_symlink("/dev/full", metrics);
  Observer observer;
  observer.on_saved = [&](const fs::path& path) {
    if (path.filename() == "last.h5" && run->step() == 6) fs::remove(metrics);
  };
  CHECK(run->train(observer) == Stopped::finished);
  REQUIRE(fs::exists(metrics));
  CHECK(records_of(dir / "run") == records_of(dir / "whole"));
}

TEST_CASE("on request, metrics that cannot be written end the run, which is saved") {
  const TemporaryDirectory dir;
  {
    const auto run = Run::create(tiny_run("on_io_error = \"stop\"\n"), dir / "run");
    fs::create_symlink("/dev/full", dir / "run/metrics.jsonl");
    CHECK_THROWS_WITH(run->train(), Contains("metrics.jsonl") && Contains("after step 1") &&
                                        Contains("continue with --resume"));
  }
  fs::remove(dir / "run/metrics.jsonl");
  const auto run = Run::resume(dir / "run");
  CHECK(run->step() == 1);
  CHECK(run->train() == Stopped::finished);
}

TEST_CASE("a checkpoint that cannot be saved is a warning until the end of the run") {
  const TemporaryDirectory dir;
  const bool until_the_end = GENERATE(false, true), stop = GENERATE(false, true);
  const auto run = Run::create(
      tiny_run("checkpoint_every = 1\n" + std::string(stop ? "on_io_error = \"stop\"\n" : "")),
      dir / "run");
  const fs::path last = dir / "run/checkpoints/last.h5";
  fs::create_directory(last);  // which no file can replace
  Observer observer;
  observer.on_progress = [&](const Progress& p) {
    if (p.step == 4 && !until_the_end) fs::remove(last);
  };
  if (until_the_end || stop) {
    CHECK_THROWS_WITH(run->train(observer), Contains("last.h5"));
    CHECK(run->step() == (stop ? 1 : 6));
  } else {
    CHECK(run->train(observer) == Stopped::finished);
    CHECK_THAT(run->summary().warnings.at(0), Contains("no checkpoint was saved after step 1"));
    CHECK(step_of(last) == 6);
  }
}

TEST_CASE("a run that is stopped where it would evaluate must be saved") {
  const TemporaryDirectory dir;
  const auto run = Run::create(tiny_run("checkpoint_every = 0\n"), dir / "run");
  int64_t step = 0;
  Observer observer = stop_after(2, step);
  observer.on_warning = [](const std::string&) {};
  fs::create_directories(dir / "run/checkpoints/last.h5");  // which no file can replace
  CHECK_THROWS_WITH(run->train(observer), Contains("last.h5"));
  CHECK(step == 2);
}

TEST_CASE("file systems without locks need permission") {
  const TemporaryDirectory dir;
  lock_error = ENOLCK;
  CHECK_THROWS_WITH(RunRecord::create(dir / "run"),
                    Contains("cannot lock") && Contains("LONGHAND_NO_LOCKS=1"));
  setenv("LONGHAND_NO_LOCKS", "1", 1);
  CHECK_NOTHROW(RunRecord::create(dir / "run"));
  lock_error = EWOULDBLOCK;  // a lock that works is respected
  CHECK_THROWS_WITH(RunRecord::create(dir / "run"), Contains("in use by another process"));
  unsetenv("LONGHAND_NO_LOCKS");
  lock_error = 0;
}

TEST_CASE("hashes of the parameters do not depend on threads and interruptions") {
  const TemporaryDirectory dir;
  const Config config = tiny_run("hash_every = 2\nmicro_batches = 2\n");
  const int before = threads();
  for (const int n : {1, 2}) {
    set_threads(n);
    Run::create(config, dir / std::to_string(n))->train();
  }
  int64_t step = 0;
  Run::create(config, dir / "parts")->train(stop_after(3, step));
  Run::resume(dir / "parts")->train();
  set_threads(before);
  const RecordedRun run = read_run(dir / "1");
  CHECK(run.metrics.size() == 9);
  REQUIRE(run.hashes.size() == 3);
  CHECK(run.hashes.at(2).size() == 32);
  CHECK(run.hashes.at(2) != run.hashes.at(4));
  CHECK(read_run(dir / "2").hashes == run.hashes);
  CHECK(read_run(dir / "parts").hashes == run.hashes);
  const Experiment fresh(config);
  CHECK(hash_of(fresh.optimizer->parameters()) != run.hashes.at(2));
}
