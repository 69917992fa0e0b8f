// Names of files that are not UTF-8, or hold escape codes or markup.
#include <fstream>
#include <nlohmann/json.hpp>

#include "longhand/core/utf8.h"
#include "longhand/data/file.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace fs = std::filesystem;

namespace {

/// Whether a text may be written to a terminal, apart from codes of the program's own.
bool is_clean(const std::string& text) {
  return is_utf8(text) && text.find_first_of(std::string("\x1b\x07\x7f\r")) == std::string::npos;
}

const std::string odd = "a\xff\x1b[31m\x07<b>";

}  // namespace

TEST_CASE("names that are not UTF-8 or hold escape codes reach no terminal, JSON or page") {
  const TinyFolder folder;
  const std::string sweep = "sweep" + odd;
  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"config.toml\"\nseeds = 1\n\n[[axis]]\nattention.type = "
             "[\"softmax\", \"linear\"]\n");
  const std::vector<std::vector<std::string>> commands = {
      {"train", "config.toml", "--out", odd, "--set", "train.steps=10"},
      {"train", "config.toml", "--out", odd},  // refused
      {"train", "--resume", odd},
      {"evaluate", odd},
      {"evaluate", odd, "--json"},
      {"checkpoint", "inspect", odd + "/checkpoints/last.h5"},
      {"checkpoint", "verify", "--all", odd},
      {"ablate", "sweep.toml", "--out", sweep},
      {"ablate", "--status", sweep},
      {"ablate", sweep, "--json"},
      {"report", odd, sweep, "-o", "report" + odd + ".html"},
      {"train", odd + ".toml", "--out", "run"},  // missing
  };
  for (const auto& words : commands) {
    CAPTURE(words);
    const Outcome outcome = run(words, folder.path());
    INFO(printable(outcome.err));
    const bool refused = &words == &commands[1] || &words == &commands.back();
    CHECK(outcome.code == (refused ? 2 : 0));
    CHECK(is_clean(outcome.out));
    CHECK(is_clean(outcome.err));
    if (refused) CHECK_THAT(outcome.err, Contains("a\\xff\\x1b[31m\\x07<b>"));
    if (words.back() == "--json") CHECK(nlohmann::json::accept(outcome.out));
  }
  const std::string page = read_text(folder / ("report" + odd + ".html"));
  CHECK(is_clean(page));
  CHECK_THAT(page, Contains("a\\xff\\x1b[31m\\x07&lt;b&gt;") && !Contains("[31m\\x07<b>"));
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (const fs::path& file = entry.path();
        file.extension() == ".json" || file.extension() == ".jsonl") {
      CAPTURE(printable(file.string()));
      CHECK(is_clean(read_text(file)));
    }
  // Also on a terminal, where lines are drawn and erased.
  Program program({"ablate", "sweep.toml", "--out", "live" + odd}, folder.path(), {}, true);
  const Outcome live = program.wait();
  CHECK(live.code == 0);
  CHECK_THAT(live.err, !Contains("\x1b[31m") && !Contains("\x07"));
}

TEST_CASE("a line break in the name of a file forges no line of output") {
  const TemporaryDirectory folder;
  fs::create_directories(folder / "checkpoints");
  write_text(folder / "checkpoints/a\nok       b.h5", "");
  const Outcome outcome = run({"checkpoint", "verify", "--all", "."}, folder.path());
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.out, Contains("a\\x0aok       b.h5") && !Contains("\nok "));
}

TEST_CASE("control characters of two bytes are escaped in JSON") {
  const TemporaryDirectory folder;
  // U+0080 and U+009F are the first and the last of them.
  const std::string name = "\xc2\x80\xc2\x9f\xc2\xa0.h5";
  write_text(folder / name, "");
  const Outcome outcome = run({"checkpoint", "verify", name, "--json"}, folder.path());
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.out, Contains("\\u0080\\u009f\xc2\xa0.h5"));
}

TEST_CASE("errors of the system end with what to do about them") {
  const TinyFolder folder;
  write_text(folder / "sweep.toml", "[sweep]\nbase = \"config.toml\"\nseeds = 1\n");
  const std::string longest(300, 'x');
  const std::vector<std::vector<std::string>> commands = {
      {"train", longest + ".toml"},
      {"train", "config.toml", "--out", longest},
      {"ablate", longest + ".toml", "--out", "sweep"},
      {"ablate", "sweep.toml", "--out", longest},
      {"data", "make", "copy", "-o", longest + ".h5"},
      {"config", "init", "copy", "-o", longest},
      {"help", "--man-pages", longest},
      {"checkpoint", "inspect", longest},
      {"report", longest},
  };
  for (const auto& words : commands) {
    CAPTURE(words);
    const Outcome outcome = run(words, folder.path());
    CHECK(outcome.code > 0);
    CHECK_THAT(outcome.err, Contains("File name too long; choose a shorter path"));
  }
}
