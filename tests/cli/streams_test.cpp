// Output that cannot be written, signals before the run begins, limits of memory, and models that are
// not finite.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace fs = std::filesystem;

TEST_CASE("messages that cannot be written do not change the exit code") {
  const TinyFolder folder;
  const std::string train = "$longhand train config.toml --out run ";
  for (const std::string to :
       {"2>/dev/full", "2>&-", ">/dev/full", ">&-", "<&- >&- 2>&-", "2>&1 >/dev/null | true"}) {
    CAPTURE(to);
    const size_t pipe = to.find('|');
    const Outcome outcome =
        shell("rm -rf run; { " + train + to.substr(0, pipe) + "; echo $? >code; } " +
                  (pipe == std::string::npos ? "" : to.substr(pipe)) + "; exit $(cat code)",
              folder.path());
    CHECK(outcome.code == 0);
    CHECK(train::load(folder / "run/checkpoints/last.h5").training.step == 20);
    // Nothing but records is in the file that was opened first.
    std::ifstream metrics(folder / "run/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) CHECK(line.starts_with("{\"step\":"));
  }
  // Nor is a pipe: the one to the process that reads the checkpoint first.
  CHECK(shell("$longhand train config.toml --init-from run --out other <&- >&- 2>&-", folder.path())
            .code == 0);
  // An error keeps its code, too.
  CHECK(shell("$longhand train none.toml 2>/dev/full", folder.path()).code == 2);
  CHECK(shell("$longhand train none.toml 2>&-", folder.path()).code == 2);
}

TEST_CASE("a result that cannot be written is an error, except to a closed pipe") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--quiet", "--out", "run"}, folder.path()).code == 0);
  for (const std::string command :
       {"train --resume run --json", "evaluate run", "evaluate run --json",
        "evaluate run --over attention.type=softmax,linear", "variants", "check attention --list",
        "config dump config.toml", "data show copy", "help train",
        "checkpoint inspect run/checkpoints/last.h5", "--help", "--version", "ablate --help",
        "data hash copy"}) {
    CAPTURE(command);
    const Outcome good = shell("$longhand " + command + " >/dev/null", folder.path());
    INFO(good.err);
    CHECK(good.code == 0);
    const Outcome full = shell("$longhand " + command + " >/dev/full", folder.path());
    CHECK(full.code == 1);
    CHECK_THAT(full.err,
               Contains("longhand: cannot write to stdout: No space left on device; free some"));
    const Outcome closed = shell("$longhand " + command + " >&-", folder.path());
    CHECK(closed.code == 1);
    const Outcome unread = shell(
        "{ $longhand " + command + " 2>err; echo $? >code; } | true; cat err >&2; exit $(cat code)",
        folder.path());
    CHECK(unread.code == 0);
    CHECK_THAT(unread.err, !Contains("cannot write"));
  }
}

TEST_CASE("signals that arrive before the configuration is read are responded to") {
  const TinyFolder folder;
  REQUIRE(mkfifo((folder / "pipe.toml").c_str(), 0600) == 0);
  {
    Program program({"train", "pipe.toml", "--out", "run"}, folder.path());
    // This waits until the program has opened the other end.
    const int pipe = open((folder / "pipe.toml").c_str(), O_WRONLY);
    REQUIRE(pipe >= 0);
    program.send(SIGUSR1);
    program.send(SIGTERM);
    REQUIRE(write(pipe, tiny_config.data(), tiny_config.size()) ==
            static_cast<ssize_t>(tiny_config.size()));
    close(pipe);
    CHECK(program.wait().code == 75);
    CHECK(train::load(folder / "run/checkpoints/last.h5").training.step == 0);
  }
  {  // A command that does not respond to them is ended as usual.
    Program program({"config", "dump", "pipe.toml"}, folder.path());
    const int pipe = open((folder / "pipe.toml").c_str(), O_WRONLY);
    REQUIRE(pipe >= 0);
    program.send(SIGTERM);
    CHECK(program.wait().code == 128 + SIGTERM);
    close(pipe);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("limits of the address space leave enough for everything but tensors") {
  const TinyFolder folder;
  for (const std::string kib : {"400000", "1000000", "4000000"}) {
    CAPTURE(kib);
    const Outcome outcome =
        shell("rm -rf run; export OPENBLAS_NUM_THREADS=1; ulimit -v " + kib +
                  "; $longhand train config.toml --quiet --out run && $longhand evaluate run",
              folder.path());
    INFO(outcome.err);
    CHECK(outcome.code == 0);
  }
  const Outcome large = shell(
      "export OPENBLAS_NUM_THREADS=1; ulimit -v 1000000; $longhand train config.toml --out large "
      "--set model.d_model=8000",
      folder.path());
  CHECK(large.code == 2);
  CHECK_THAT(large.err, Contains("(half of its address space, ulimit -v)"));

  // Less would let OpenBLAS wait for ever.
  for (const std::string kib : {"130000", "170000"}) {
    CAPTURE(kib);
    const Outcome small =
        shell("ulimit -v " + kib + "; timeout -s KILL 20 $longhand --version", folder.path());
    CHECK(small.code == 2);
    CHECK_THAT(small.err,
               Contains("expected at least ") && Contains("run \"ulimit -v unlimited\" first"));
  }
}
#endif

TEST_CASE("a model whose weights are not finite cannot be evaluated") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--quiet", "--out", "run"}, folder.path()).code == 0);
  const fs::path best = folder / "run/checkpoints/best.h5";
  train::Checkpoint checkpoint = train::load(best);
  checkpoint.model.at("head.weight").slice(0, 0, 1).fill(std::nan(""));
  save(best, checkpoint);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--over", "attention.type=softmax"}, {"--draws", "2"}}) {
    std::vector<std::string> arguments = {"evaluate", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments, folder.path());
    CHECK(outcome.code == 4);
    CHECK(outcome.out == "");
    CHECK_THAT(outcome.err, Contains("best.h5: 16 of ") && Contains("head.weight"));
  }
  const Outcome predicted = run({"predict", "run"}, folder.path());
  CHECK(predicted.code == 4);
  CHECK(predicted.out == "");
  CHECK_THAT(predicted.err, Contains("best.h5: 16 of ") && Contains("head.weight"));
}

TEST_CASE("a quiet run keeps its warnings in the summary") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--quiet", "--out", "run"}, folder.path()).code == 0);
  const fs::path last = folder / "run/checkpoints/last.h5";
  train::Checkpoint checkpoint = train::load(last);
  checkpoint.machine = "another machine";
  save(last, checkpoint);
  const Outcome resumed =
      run({"train", "--resume", "run", "--quiet", "--set", "train.steps=21"}, folder.path());
  CHECK(resumed.code == 0);
  CHECK(resumed.err == "");
  const auto summary = nlohmann::json::parse(std::ifstream(folder / "run/summary.json"));
  REQUIRE(summary["warnings"].size() == 1);
  CHECK_THAT(summary["warnings"][0].get<std::string>(), Contains("computed by another machine"));
}
