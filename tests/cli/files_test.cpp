// Files of others: damaged, malicious, of earlier versions, or not files at all.
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "longhand/core/random.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"
#include "tests/support/damage.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path formats = LONGHAND_SOURCE "/tests/data/formats";

void flip(const fs::path& path, size_t byte) {
  auto bytes = data::read_file(path);
  bytes[byte] ^= std::byte{1};
  data::write_file_durably(path, bytes);
}

}  // namespace

TEST_CASE("checkpoint verify finds the invalid ones below a directory") {
  const TinyFolder folder;
  succeed({"train", "config.toml", "--quiet", "--out", "runs/a"}, folder.path());
  fs::create_directories(folder / "runs/b/checkpoints");
  fs::copy(formats / "checkpoint-1.h5", folder / "runs/b/checkpoints/last.h5");
  fs::copy(formats / "data-2.h5", folder / "runs/b/data.h5");  // in no folder of checkpoints
  const Outcome all = succeed({"checkpoint", "verify", "--all", "runs"}, folder.path());
  CHECK_THAT(all.out, Contains("ok       runs/a/checkpoints/best.h5 (step 20)") &&
                          Contains("ok       runs/a/checkpoints/last.h5 (step 20)") &&
                          Contains("ok       runs/b/checkpoints/last.h5 (step 2)"));

  flip(folder / "runs/a/checkpoints/best.h5", 3000);
  for (const std::string runs : {"runs", "runs/"}) {
    const Outcome one = run({"checkpoint", "verify", "--all", runs}, folder.path());
    CHECK(one.code == 3);
    CHECK_THAT(one.out, Contains("invalid  runs/a/checkpoints/best.h5 is damaged: ") &&
                            Contains("ok       runs/a/checkpoints/last.h5"));
    CHECK_THAT(one.err, Contains("1 of 4 checkpoints is invalid"));
  }
  for (const char* const here : {".", "./", "../checkpoints/"})
    CHECK_THAT(run({"checkpoint", "verify", "--all", here}, folder / "runs/a/checkpoints").err,
               Contains("1 of 3 checkpoints is invalid"));
  const Outcome json = run({"checkpoint", "verify", "runs/a/checkpoints/best.h5",
                            "runs/a/checkpoints/last.h5", "--json"},
                           folder.path());
  CHECK(json.code == 3);
  CHECK(Json::parse(json.out)["files"][0]["valid"] == false);
  CHECK(Json::parse(json.out)["files"][1]["step"] == 20);
  CHECK(run({"checkpoint", "verify"}, folder.path()).code == 2);
  fs::create_directory(folder / "empty");
  CHECK_THAT(run({"checkpoint", "verify", "--all", "empty"}, folder.path()).err,
             Contains("--all empty: no folder named checkpoints"));
}

TEST_CASE("files of every format version can be used") {
  const TemporaryDirectory folder;
  for (const char* const version : {"1", "2"}) {
    const std::string data = formats / (std::string("data-") + version + ".h5"),
                      checkpoint = formats / (std::string("checkpoint-") + version + ".h5");
    CHECK_THAT(succeed({"data", "hash", "tokens", "--set", "data.path=" + data}, folder.path()).out,
               Contains("86292933b0f9efb154b421ead744e162  train (12 examples)"));
    const Outcome shown = succeed({"checkpoint", "inspect", checkpoint, "--json"}, folder.path());
    CHECK(Json::parse(shown.out)["model"].size() == 22);
    succeed({"evaluate", checkpoint}, folder.path());
  }
}

TEST_CASE("a file that crashes libhdf5 is an error") {
  // Its digest is valid, its groups are not: libhdf5 1.10.8 is ended by a signal.
  const TemporaryDirectory folder;
  const std::string file = formats / "malicious-1.h5";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"checkpoint", "inspect", file},
        {"evaluate", file},
        {"data", "hash", "tokens", "--set", "data.path=" + file}}) {
    const Outcome outcome = run(command, folder.path());
    INFO(outcome.err);
    CHECK(outcome.code == 3);
    CHECK_THAT(outcome.err, Contains(file));
  }
  // libhdf5 1.14 survives it.
  const Outcome checked = run({"data", "check", "hdf5", file}, folder.path());
  CHECK((checked.code == 3 || (checked.code == 0 && !checked.out.empty())));
  const Outcome whole =
      succeed({"data", "check", "hdf5", formats / "data-2.h5", "--json"}, folder.path());
  CHECK(Json::parse(whole.out)["datasets"] == 9);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(Json::parse(whole.out)["sandboxed"] == (prctl(PR_GET_SECCOMP) >= 0));
#endif
}

TEST_CASE("files can be checked without /proc") {
  const TinyFolder folder;
  const std::string hidden =
      "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /proc && ";
  if (shell(hidden + "true'", folder.path()).code != 0) {
    WARN("this system does not let users hide /proc");
    return;
  }
  const Outcome outcome = shell(hidden + "test ! -e /proc/self && $longhand data check hdf5 " +
                                    (formats / "data-2.h5").string() + "'",
                                folder.path());
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("9 datasets"));
}

TEST_CASE("files damaged with a valid digest are read or refused") {
  // reliability/damaged_files.cpp is the long version.
  const TemporaryDirectory folder;
  int refused = 0;
  for (const char* const name : {"checkpoint-1.h5", "checkpoint-2.h5", "data-2.h5"}) {
    const Bytes whole = data::read_file(formats / name);
    const bool is_data = std::string(name) == "data-2.h5";
    for (int i = 0; i < 12; ++i) {
      Bytes bytes = whole;
      damage(bytes, bytes.size() - 32, Generator(2).fork(name).fork(i));
      write_digest(bytes);
      data::write_file_durably(folder / "a.h5", bytes);
      const Outcome outcome =
          is_data ? run({"data", "hash", "tokens", "--set", "data.path=a.h5"}, folder.path())
                  : run({"checkpoint", "verify", "a.h5"}, folder.path());
      INFO(name << ' ' << i << ": " << outcome.err);
      CHECK((outcome.code == 0 || outcome.code == 3));
      refused += outcome.code == 3;
    }
  }
  CHECK(refused >= 5);
}

TEST_CASE("what is not a regular file is refused at once") {
  const TemporaryDirectory folder;
  REQUIRE(mkfifo((folder / "pipe.h5").c_str(), 0600) == 0);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"checkpoint", "inspect", "pipe.h5"},
        {"data", "check", "hdf5", "pipe.h5"},
        {"data", "hash", "tokens", "--set", "data.path=pipe.h5"}}) {
    const Outcome outcome = run(command, folder.path());
    CHECK(outcome.code == 3);
    CHECK_THAT(outcome.err, Contains("pipe.h5: not a regular file"));
  }
  // 2^40 bytes
  std::ofstream(folder / "sparse.h5") << "\x89HDF\r\n\x1a\n";
  fs::resize_file(folder / "sparse.h5", uintmax_t{1} << 40);
  const Outcome sparse = run({"checkpoint", "inspect", "sparse.h5"}, folder.path());
  CHECK(sparse.code == 3);
  CHECK(sparse.peak_memory < memory_to_refuse);
  CHECK_THAT(sparse.err, Contains("is cut off"));
}

TEST_CASE("text in files does not control the terminal") {
  const TemporaryDirectory folder;
  train::Checkpoint c;
  c.config =
      "# \x1b[31mred \x07 \xc2\x9b"
      "31m \xff\n[train]\nsteps = 1\n";
  c.machine = "a\x1b]0;title\x07";
  c.model["w\x1b[2J"] = Tensor::scalar(1);
  train::save(folder / "a.h5", c);
  const Outcome shown = succeed({"checkpoint", "inspect", "a.h5"}, folder.path());
  CHECK_THAT(shown.out,
             Contains("machine  a\\x1b]0;title\\x07\n") && Contains("w\\x1b[2J") &&
                 Contains("# \\x1b[31mred \\x07 \\xc2\\x9b31m \\xff\n[train]\nsteps = 1\n"));
  const Outcome json = succeed({"checkpoint", "inspect", "a.h5", "--json"}, folder.path());
  for (const std::string& text : {shown.out, json.out}) {
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("\xc2\x9b") == std::string::npos);
  }
  write_text(folder / "a.toml", "[data]\ntask = \"copy\"\n[model]\n\"\\u001b[31m" +
                                    std::string(100'000, 'x') + "\" = 1\n");
  const Outcome refused = run({"config", "dump", "a.toml"}, folder.path());
  CHECK(refused.code == 2);
  CHECK(refused.err.size() < 4200);
  CHECK_THAT(refused.err, Contains("\\x1b[31mxxx") && Contains(" [...] "));
  CHECK(refused.err.find('\x1b') == std::string::npos);
}

TEST_CASE("a checkpoint alone does not choose what is opened") {
  const TinyFolder folder;
  succeed({"data", "make", "copy", "--set", "data.length=16", "data.count=4", "data.train_size=64",
           "data.validation_size=16", "data.test_size=16", "-o", "data.h5", "--quiet"},
          folder.path());
  std::string config = tiny_config;
  const size_t begin = config.find("[data]"), end = config.find("[train]");
  config.replace(begin, end - begin, "[data]\ntask = \"tokens\"\npath = \"data.h5\"\n");
  write_text(folder / "config.toml", config);
  succeed({"train", "config.toml", "--quiet", "--out", "run"}, folder.path());
  succeed({"evaluate", "run"}, folder.path());
  succeed({"evaluate", "run/checkpoints/last.h5"}, folder.path());
  // As earlier versions stored a path: as it was given.
  const std::string absolute = data::read_text_file(folder / "run/config.toml");
  std::string relative = absolute;
  const size_t name = relative.find("data.h5"), quote = relative.rfind('"', name);
  REQUIRE(name - quote > 1);
  write_text(folder / "run/config.toml", relative.erase(quote + 1, name - quote - 1));
  succeed({"evaluate", "run"}, folder.path());
  write_text(folder / "run/config.toml", absolute);

  fs::copy(folder / "run/checkpoints/last.h5", folder / "alone.h5");
  const Outcome refused = run({"evaluate", "alone.h5"}, folder.path());
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("alone.h5 has data.path = ") && Contains("data.h5\"") &&
                              Contains("--trust-paths") && Contains("--set data.path=PATH"));
  CHECK(run({"analyse", "error", "--run", "alone.h5"}, folder.path()).code == 2);
  CHECK(run({"replay", "alone.h5"}, folder.path()).code == 2);
  CHECK(run({"replay", "alone.h5", "--trust-paths"}, folder.path()).code == 0);
  CHECK(run({"convert", "alone.h5", "--low-rank", "4", "--out", "small"}, folder.path()).code == 2);
  succeed({"evaluate", "alone.h5", "--trust-paths"}, folder.path());
  succeed({"evaluate", "alone.h5", "--set", "data.path=data.h5"}, folder.path());

  // As if the checkpoint of a run had been exchanged.
  std::string of_run = data::read_text_file(folder / "run/config.toml");
  of_run.replace(of_run.find("data.h5"), 7, "mine.h5");
  write_text(folder / "run/config.toml", of_run);
  CHECK(run({"evaluate", "run"}, folder.path()).code == 2);
}
