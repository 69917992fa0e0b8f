#include "longhand/train/config.h"

#include "longhand/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using longhand::test::message_of;
using longhand::train::Config;

namespace {

/// Reads options as the components of a program would.
void read(const Config& config) {
  config.model().get_int("d_model", 64, 1);
  config.model().get_double("dropout", 0, 0, 1);
  const std::string type = config.attention().get_string("type", "softmax");
  if (type == "linformer") config.attention().get_int("k", 256, 1);
  if (type == "performer") config.attention().get_int("features", 128, 1);
  config.data().get_string("path", "");
  config.train().get_ints("sizes", {1, 2});
  config.train().get_bool("shuffle", true);
  config.optimizer().get_double("lr", 1e-3, 0);
}

std::string error_of(const std::string& text) {
  return message_of<ConfigError>([&] {
    const Config config = Config::parse(text, "c.toml");
    read(config);
    config.check_all_read();
  });
}

}  // namespace

TEST_CASE("the effective configuration is what was read, and reads back to itself") {
  const Config config = Config::parse(
      "[model]\nd_model = 32\n[train]\nsizes = [3]\n[optimizer]\nlr = 0.1\n"
      "[data]\npath = 'a \"b\" \\ \tc'\n",
      "c.toml");
  read(config);
  config.check_all_read();
  CHECK_THAT(config.to_toml({"model.d_model"}), Catch::StartsWith("[model]\ndropout = 0.0\n"));
  CHECK(config.unread().to_toml().find("d_model") == std::string::npos);
  CHECK(config.unread().model().get_int("d_model", 0) == 32);
  const std::string text = config.to_toml();
  CHECK(text ==
        "[model]\nd_model = 32\ndropout = 0.0\n\n[attention]\ntype = \"softmax\"\n\n[data]\n"
        "path = \"a \\\"b\\\" \\\\ \\u0009c\"\n\n[train]\nshuffle = true\nsizes = 3\n\n"
        "[optimizer]\nlr = 0.1\n");
  const Config again = Config::parse(text, "again.toml");
  read(again);
  again.check_all_read();
  CHECK(again.to_toml() == text);
  CHECK(again.data().get_string("path", "") == "a \"b\" \\ \tc");
  CHECK(again.optimizer().get_double("lr", 0) == 0.1);
}

TEST_CASE("invalid configurations are refused with the location") {
  using Catch::Contains;
  CHECK_THAT(error_of("[model]\nd_model = \n"), Contains("c.toml:2:"));
  CHECK_THAT(error_of("[model\n"), Contains("c.toml:1:"));
  CHECK_THAT(error_of("[model]\nd_model = 1\nd_model = 2\n"), Contains("c.toml:3:"));
  CHECK_THAT(error_of("\n[modle]\n"),
             Contains("c.toml:2:2") && Contains("[modle]") && Contains("did you mean [model]?"));
  CHECK_THAT(error_of("[zzz]\n"), Contains("expected [model]"));
  CHECK_THAT(error_of("d_model = 3\n"), Contains("c.toml:1:1") && Contains("outside of a section"));
  CHECK_THAT(error_of("[model]\n  d_modle = 3\n"),
             Contains("c.toml:2:3") && Contains("model.d_modle") && Contains("d_model"));
  CHECK_THAT(error_of("[model]\nd_model = 'x'\n"),
             Contains("c.toml:2:1") && Contains("model.d_model") && Contains("integer"));
  CHECK_THAT(error_of("[model]\nd_model = -3\n"), Contains("c.toml:2:1") && Contains("-3"));
  CHECK_THAT(error_of("[model]\nd_model = 1979-05-27\n"), Contains("model.d_model"));
  CHECK_THAT(error_of("[model.deeper]\na = 1\n"), Contains("model.deeper"));
  CHECK_THAT(error_of("[model]\na = [1, 'x']\n"), Contains("model.a"));
  CHECK_THAT(error_of("[model]\na = [1.5]\n"), Contains("model.a"));
  CHECK_THAT(error_of("[model]\ndropout = nan\n"), Contains("model.dropout"));
}

TEST_CASE("files that cannot be read are named") {
  const test::TemporaryDirectory folder;
  using Catch::Contains;
  CHECK_THAT(message_of<ConfigError>([&] { Config::load(folder / "none.toml"); }),
             Contains("none.toml") && Contains("No such file"));
  CHECK_THAT(message_of<ConfigError>([&] { Config::load(folder.path()); }), Contains("folder"));
  test::write_text(folder / "c.toml", "[train]\nseed = 'x'\n");
  const Config config = Config::load(folder / "c.toml");
  CHECK_THAT(message_of<ConfigError>([&] { config.train().get_int("seed", 0); }),
             Contains((folder / "c.toml").string() + ":2:1"));
}

TEST_CASE("assignments override the file, and are read as TOML or as text") {
  Config config = Config::parse("[model]\nd_model = 32\n", "c.toml");
  config.assign("model.d_model=48");
  config.assign("model.dropout=0.5");
  config.assign("data.path=some folder/a.txt");
  config.assign("train.sizes=[4, 5]");
  config.assign("train.shuffle=false");
  read(config);
  CHECK(config.given().at("model.d_model") == OptionValue(int64_t{48}));
  CHECK(config.model().get_int("d_model", 0) == 48);
  CHECK(config.model().get_double("dropout", 0) == 0.5);
  CHECK(config.data().get_string("path", "") == "some folder/a.txt");
  CHECK(config.train().get_ints("sizes", {}) == std::vector<int64_t>{4, 5});
  CHECK_FALSE(config.train().get_bool("shuffle", true));

  config.assign("data.path='12'");
  CHECK(config.data().get_string("path", "") == "12");
  config.assign("data.path=a=b\nmodel.d_model = 1");
  CHECK(config.data().get_string("path", "") == "a=b\nmodel.d_model = 1");
  CHECK(config.model().get_int("d_model", 0) == 48);

  using Catch::Contains;
  for (const char* wrong : {"", "x", "=", "model", "model=3", ".=3", "model.=3", ".d_model=3"})
    CHECK_THAT(message_of<ConfigError>([&] { config.assign(wrong); }),
               Contains("section.key=value"));
  CHECK_THAT(message_of<ConfigError>([&] { config.assign("modle.x=1"); }),
             Contains("did you mean [model]?"));
  config.assign("model.d_model=-1");
  CHECK_THAT(message_of<ConfigError>([&] { read(config); }),
             Contains("--set") && Contains("model.d_model"));
}

TEST_CASE("with another type, options of the file's type are ignored") {
  const std::string file = "[attention]\ntype = 'linformer'\nk = 16\n";
  SECTION("they are not errors, and not effective") {
    Config config = Config::parse(file, "c.toml");
    config.assign("attention.type=performer");
    read(config);
    config.check_all_read();
    CHECK(config.ignored() == std::vector<std::string>{"attention.k"});
    CHECK_THAT(config.to_toml(),
               Catch::Contains("[attention]\nfeatures = 128\ntype = \"performer\"\n"));
  }
  SECTION("those of the command line still are") {
    Config config = Config::parse(file, "c.toml");
    config.assign("attention.kk=3");
    config.assign("attention.type=performer");
    read(config);
    CHECK_THROWS_AS(config.check_all_read(), ConfigError);
  }
  SECTION("the same type changes nothing") {
    Config config = Config::parse(file + "kk = 3\n", "c.toml");
    config.assign("attention.type=linformer");
    read(config);
    CHECK_THROWS_AS(config.check_all_read(), ConfigError);
  }
  SECTION("nor does another section's type") {
    Config config = Config::parse(file + "kk = 3\n", "c.toml");
    config.assign("data.task=copy");
    config.data().get_string("task", "");
    read(config);
    CHECK_THROWS_AS(config.check_all_read(), ConfigError);
  }
}

TEST_CASE("a removed option is as if it had not been given") {
  Config config = Config::parse("[model]\nd_model = 32\nlayers = 2\n", "c.toml");
  config.erase("model", "d_model");
  CHECK_FALSE(config.model().has("d_model"));
  CHECK_FALSE(config.unread().model().has("d_model"));
  CHECK(config.given().size() == 1);
}

TEST_CASE("a section is found by its name") {
  Config config;
  CHECK(config.section("optimizer").section() == "optimizer");
  CHECK_THROWS_AS(config.section("optimiser"), ConfigError);
}
