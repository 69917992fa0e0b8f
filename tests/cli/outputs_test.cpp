// -o: a new file, or one that the same command wrote; any other with --force.
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("outputs: -o replaces what the same command wrote, and nothing else without --force") {
  const TinyFolder folder;
  REQUIRE(run({"train", "config.toml", "--quiet", "--out", "R"}, folder.path()).code == 0);
  write_text(folder / "mine.txt", "mine");
  const auto result = R"({"kind": "evaluate", "tables": []})";
  write_text(folder / "other.json", result);

  struct Writer {
    std::vector<std::string> command;
    std::string out;
    bool again = true;  // whether it recognises what it wrote
  };
  const std::vector<Writer> writers = {
      {{"predict", "R", "--limit", "2"}, "p.jsonl"},
      {{"predict", "R", "--limit", "2"}, "p.h5"},
      {{"predict", "R", "--limit", "2"}, "p.npz"},
      {{"predict", "R", "--limit", "2"}, "p.safetensors"},
      {{"data", "make", "copy", "--set", "data.length=16", "data.count=4", "data.train_size=8",
        "data.validation_size=4", "data.test_size=4"},
       "d.h5"},
      {{"checkpoint", "export", "R"}, "w.safetensors"},
      {{"checkpoint", "export", "R"}, "w.npz"},
      {{"report", "R"}, "r.html"},
      {{"report", "R", "--csv"}, "r.csv"},
      {{"report", "R", "--json"}, "r.json"},
      {{"analyse", "landmarks", "--draws", "2"}, "a.json"},
      {{"completion", "bash"}, "c.bash"},
      {{"config", "init", "copy"}, "i.toml", false},
  };
  for (const Writer& writer : writers) {
    CAPTURE(writer.command, writer.out);
    const auto write_to = [&](const std::string& out, bool force = false) {
      std::vector<std::string> arguments = writer.command;
      // Before --set, whose words go on.
      arguments.insert(arguments.begin() + (arguments[0] == "data" ? 3 : 2), {"-o", out});
      if (force) arguments.insert(arguments.begin() + 2, "--force");
      return run(arguments, folder.path());
    };
    const Outcome first = write_to(writer.out);
    INFO(first.err);
    REQUIRE(first.code == 0);
    const Outcome again = write_to(writer.out);
    INFO(again.err);
    CHECK(again.code == (writer.again ? 0 : 2));
    // Files of others, checkpoints among them, under a name that the command accepts.
    const std::string extension = std::filesystem::path(writer.out).extension();
    for (const std::string& other : {std::string("R/checkpoints/last.h5"), std::string("mine.txt"),
                                     std::string("other.json")}) {
      const std::string target = "copy" + extension;
      std::filesystem::copy_file(folder / other, folder / target,
                                 std::filesystem::copy_options::overwrite_existing);
      const std::string before = read_text(folder / target);
      const Outcome refused = write_to(target);
      CHECK(refused.code == 2);
      CHECK_THAT(refused.err, Catch::Contains("-o " + target) && Catch::Contains("--force"));
      CHECK(read_text(folder / target) == before);
    }
    // Text that its mark is in, but not where the command puts it.
    const std::string own = read_text(folder / writer.out), mixed = "mixed" + extension;
    if (own.find('\0') == std::string::npos) {
      write_text(folder / mixed, "mine\n" + own);
      CHECK(write_to(mixed).code == 2);
      CHECK(read_text(folder / mixed) == "mine\n" + own);
    }
    CHECK(write_to("copy" + extension, true).code == 0);
    std::filesystem::create_directory(folder / ("folder" + extension));
    CHECK(write_to("folder" + extension, true).code == 2);
  }
  // Files that name the command, and were not written by it.
  for (const std::string text : {R"({"example": "my data"})",
                                 R"({"note": "made with longhand predict R, then labelled"})"}) {
    write_text(folder / "mine.jsonl", text);
    CHECK(run({"predict", "R", "-o", "mine.jsonl"}, folder.path()).code == 2);
    CHECK(read_text(folder / "mine.jsonl") == text);
  }
  const std::string rc = read_text(folder / "c.bash") + "alias mine=ls\n";
  write_text(folder / "rc", rc);
  CHECK(run({"completion", "bash", "-o", "rc"}, folder.path()).code == 2);
  CHECK(read_text(folder / "rc") == rc);
  CHECK(run({"help", "--man-pages", "man"}, folder.path()).code == 0);
  CHECK(run({"help", "--man-pages", "man"}, folder.path()).code == 0);
  write_text(folder / "man/longhand.1", "mine");
  CHECK(run({"help", "--man-pages", "man"}, folder.path()).code == 2);
  CHECK(read_text(folder / "man/longhand.1") == "mine");
  // The checkpoint of a run itself.
  const std::string best = read_text(folder / "R/checkpoints/best.h5");
  CHECK(run({"predict", "R", "-o", "R/checkpoints/best.h5"}, folder.path()).code == 2);
  CHECK(run({"data", "make", "copy", "-o", "R/checkpoints/best.h5"}, folder.path()).code == 2);
  CHECK(read_text(folder / "R/checkpoints/best.h5") == best);
}
