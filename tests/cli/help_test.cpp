// longhand help, and the tables of the pages generated from it.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "longhand/train/reference.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string help(const std::vector<std::string>& topic) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments = {"help"};
  arguments.insert(arguments.end(), topic.begin(), topic.end());
  const Outcome outcome = run(arguments, folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome.out;
}

}  // namespace

TEST_CASE("help prints each option with default, range and meaning") {
  CHECK_THAT(help({}), Contains("longhand help train") && Contains("attention.NAME"));
  CHECK_THAT(help({"train"}), Contains("batch_size") && Contains("at least 1; default 1000"));
  CHECK_THAT(help({"optimizer"}), Contains("beta1") && Contains("beta2"));
  CHECK_THAT(help({"model"}), Contains("d_mlp") && Contains("default 2 d_model"));
  CHECK_THAT(help({"data"}), Contains("data.mqar") && Contains("associative recall"));
  CHECK_THAT(help({"data.mqar"}), Contains("pairs") && Contains("default 4)"));
  CHECK_THAT(help({"attention"}), Contains("attention.performer") && Contains("type"));
  CHECK_THAT(help({"attention.performer"}), Contains("features") && Contains("default 256)"));
  CHECK_THAT(help({"--markdown", "data.mqar"}), Catch::StartsWith("| option | values |"));
}

TEST_CASE("help on an unknown topic names the nearest one") {
  const TemporaryDirectory folder;
  for (const auto& [topic, near] : {std::pair{"attention.perfomer", "attention.performer"},
                                    {"performer", "attention.performer"},
                                    {"trian", "train"},
                                    {"data.mqqar", "data.mqar"}}) {
    const Outcome outcome = run({"help", topic}, folder.path());
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err, Contains(std::string("did you mean ") + near + "?"));
  }
  CHECK_THAT(run({"help", "colours"}, folder.path()).err, Contains("expected one of model"));
}

TEST_CASE("config dump prints the meaning of options") {
  const TinyFolder folder;
  const Outcome outcome = run({"config", "dump", "config.toml", "--comments"}, folder.path());
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("# embedding dimension, a multiple of heads") &&
                              Contains("# number of symbols to copy") &&
                              Contains("# peak learning rate of the schedule"));
  write_text(folder / "again.toml", outcome.out);
  const std::string plain = run({"config", "dump", "config.toml"}, folder.path()).out;
  CHECK(run({"config", "dump", "again.toml"}, folder.path()).out == plain);
}

TEST_CASE("tables of options in the pages are those of the declarations") {
  const fs::path source = LONGHAND_SOURCE;
  size_t tables = 0;
  for (const char* folder : {"attention", "data", "train"})
    for (const auto& entry : fs::recursive_directory_iterator(source / folder)) {
      if (entry.path().extension() != ".md") continue;
      const std::string text = read(entry.path());
      const std::string begin = "\n<!-- options: ", end = "<!-- end -->";
      for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
        const size_t name = at + begin.size(), close = text.find(" -->\n", name);
        const size_t table = close + 5, stop = text.find(end, table);
        REQUIRE(close != std::string::npos);
        REQUIRE(stop != std::string::npos);
        INFO(entry.path().string() << ": stale; run tests/update_pages.sh PATH/TO/longhand");
        CHECK(text.substr(table, stop - table) ==
              to_markdown(train::topic(text.substr(name, close - name))));
        ++tables;
      }
    }
  CHECK(tables >= 20);
}
