#include "longhand/train/config/config.h"

#include "longhand/core/error.h"
#include "longhand/core/schema.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/reference.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using longhand::test::message_of;
using longhand::train::Config;
using longhand::train::to_toml;

namespace {

/// Sections as the components of a program would declare them.
struct Model {
  int64_t d_model = 64;
  double dropout = 0;
  void describe(OptionVisitor& v) {
    v.integer("d_model", d_model, {1}, "");
    v.number("dropout", dropout, {0, 1}, "");
  }
};
struct Attention {
  std::string type = "softmax";
  int64_t k = 256, features = 128;
  void describe(OptionVisitor& v) {
    v.text("type", type, "");
    if (type == "linformer") v.integer("k", k, {1}, "");
    if (type == "performer") v.integer("features", features, {1}, "");
  }
};
struct Data {
  std::string path;
  void describe(OptionVisitor& v) { v.text("path", path, ""); }
};
struct Train {
  std::vector<int64_t> sizes{1, 2};
  bool shuffle = true;
  void describe(OptionVisitor& v) {
    v.integers("sizes", sizes, {}, "");
    v.boolean("shuffle", shuffle, "");
  }
};
struct Optimizer {
  double lr = 1e-3;
  void describe(OptionVisitor& v) { v.number("lr", lr, {0}, ""); }
};

/// The values of all sections.
EffectiveSections read(const Config& config) {
  EffectiveSections values;
  read_section<Model>(config.model(), {}, &values["model"]);
  read_section<Attention>(config.attention(), {}, &values["attention"]);
  read_section<Data>(config.data(), {}, &values["data"]);
  read_section<Train>(config.train(), {}, &values["train"]);
  read_section<Optimizer>(config.optimizer(), {}, &values["optimizer"]);
  return values;
}

OptionValue value_of(const Config& config, const std::string& section, const std::string& key) {
  return read(config).at(section).at(key).value;
}

std::string error_of_config(const std::string& text) {
  return message_of<ConfigError>([&] { read(Config::parse(text, "c.toml")); });
}

}  // namespace

TEST_CASE("the effective configuration is what was read, and reads back to itself") {
  const Config config = Config::parse(
      "[model]\nd_model = 32\n[train]\nsizes = [3]\n[optimizer]\nlr = 0.1\n"
      "[data]\npath = 'a \"b\" \\ \tc'\n",
      "c.toml");
  const std::string text = to_toml(read(config));
  CHECK(text ==
        "[model]\nd_model = 32\ndropout = 0.0\n\n[attention]\ntype = \"softmax\"\n\n[data]\n"
        "path = \"a \\\"b\\\" \\\\ \\u0009c\"\n\n[train]\nshuffle = true\nsizes = 3\n\n"
        "[optimizer]\nlr = 0.1\n");
  const Config again = Config::parse(text, "again.toml");
  CHECK(to_toml(read(again)) == text);
  CHECK(value_of(again, "data", "path") == OptionValue("a \"b\" \\ \tc"));
  CHECK(value_of(again, "optimizer", "lr") == OptionValue(0.1));
  CHECK(to_toml({}) == "[model]\n\n[attention]\n\n[data]\n\n[train]\n\n[optimizer]\n");
}

TEST_CASE("invalid configurations are refused with the location") {
  using Catch::Contains;
  CHECK_THAT(error_of_config("[model]\nd_model = \n"), Contains("c.toml:2:"));
  CHECK_THAT(error_of_config("[model\n"), Contains("c.toml:1:"));
  CHECK_THAT(error_of_config("[model]\nd_model = 1\nd_model = 2\n"), Contains("c.toml:3:"));
  CHECK_THAT(error_of_config("\n[modle]\n"),
             Contains("c.toml:2:2") && Contains("[modle]") && Contains("did you mean [model]?"));
  CHECK_THAT(error_of_config("[zzz]\n"), Contains("expected [model]"));
  CHECK_THAT(error_of_config("d_model = 3\n"),
             Contains("c.toml:1:1") && Contains("outside of a section"));
  CHECK_THAT(error_of_config("[model]\n  d_modle = 3\n"),
             Contains("c.toml:2:3") && Contains("model.d_modle") && Contains("d_model"));
  CHECK_THAT(error_of_config("[model]\nd_model = 'x'\n"),
             Contains("c.toml:2:1") && Contains("model.d_model") && Contains("integer"));
  CHECK_THAT(error_of_config("[model]\nd_model = -3\n"), Contains("c.toml:2:1") && Contains("-3"));
  CHECK_THAT(error_of_config("[model]\nd_model = 1979-05-27\n"), Contains("model.d_model"));
  CHECK_THAT(error_of_config("[model.deeper]\na = 1\n"), Contains("model.deeper"));
  CHECK_THAT(error_of_config("[model]\na = [1, 'x']\n"), Contains("model.a"));
  CHECK_THAT(error_of_config("[model]\na = [1.5]\n"), Contains("model.a"));
  CHECK_THAT(error_of_config("[model]\ndropout = nan\n"), Contains("model.dropout"));
}

TEST_CASE("files that cannot be read are named") {
  const test::TemporaryDirectory folder;
  using Catch::Contains;
  CHECK_THAT(message_of<ConfigError>([&] { Config::load(folder / "none.toml"); }),
             Contains("none.toml") && Contains("No such file"));
  CHECK_THAT(message_of<ConfigError>([&] { Config::load(folder.path()); }), Contains("folder"));
  test::write_text(folder / "c.toml", "[train]\nshuffle = 'x'\n");
  const Config config = Config::load(folder / "c.toml");
  CHECK_THAT(message_of<ConfigError>([&] { read(config); }),
             Contains((folder / "c.toml").string() + ":2:1"));
}

TEST_CASE("assignments override the file, and are read as TOML or as text") {
  Config config = Config::parse("[model]\nd_model = 32\n", "c.toml");
  config.assign("model.d_model=48");
  config.assign("model.dropout=0.5");
  config.assign("data.path=some folder/a.txt");
  config.assign("train.sizes=[4, 5]");
  config.assign("train.shuffle=false");
  CHECK(config.given().at("model.d_model") == OptionValue(int64_t{48}));
  CHECK(value_of(config, "model", "d_model") == OptionValue(int64_t{48}));
  CHECK(value_of(config, "model", "dropout") == OptionValue(0.5));
  CHECK(value_of(config, "data", "path") == OptionValue("some folder/a.txt"));
  CHECK(value_of(config, "train", "sizes") == OptionValue(std::vector<int64_t>{4, 5}));
  CHECK(value_of(config, "train", "shuffle") == OptionValue(false));

  config.assign("data.path='12'");
  CHECK(value_of(config, "data", "path") == OptionValue("12"));
  config.assign("data.path=a=b\nmodel.d_model = 1");
  CHECK(value_of(config, "data", "path") == OptionValue("a=b\nmodel.d_model = 1"));
  CHECK(value_of(config, "model", "d_model") == OptionValue(int64_t{48}));

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
    const EffectiveSections values = read(config);
    CHECK(config.ignored(values) == std::vector<std::string>{"attention.k"});
    CHECK_THAT(to_toml(values),
               Catch::Contains("[attention]\nfeatures = 128\ntype = \"performer\"\n"));
  }
  SECTION("nor are values that the new type does not accept") {
    Config config =
        Config::parse("[attention]\ntype = 'performer'\nfeatures = 4\nk = 'few'\n", "c.toml");
    config.assign("attention.type=linformer");
    const EffectiveSections values = read(config);
    CHECK(values.at("attention").at("k").value == OptionValue(int64_t{256}));
    CHECK(config.ignored(values) == std::vector<std::string>{"attention.features", "attention.k"});
  }
  SECTION("those of the command line still are") {
    Config config = Config::parse(file, "c.toml");
    config.assign("attention.kk=3");
    config.assign("attention.type=performer");
    CHECK_THROWS_AS(read(config), ConfigError);
  }
  SECTION("the same type changes nothing") {
    Config config = Config::parse(file + "kk = 3\n", "c.toml");
    config.assign("attention.type=linformer");
    CHECK_THROWS_AS(read(config), ConfigError);
  }
  SECTION("a path of another kind leaves other options") {
    const std::string data = "[data]\ntask = 'listops'\nmax_args = 5\n";
    Config config = Config::parse(data + "path = ''\n", "c.toml");
    config.assign("data.path=basic_test.tsv");
    CHECK(config.data().is_optional("max_args"));
    CHECK_FALSE(config.data().is_optional("task"));
    Config first = Config::parse(data, "c.toml");  // of a user, in whose file typing errors matter
    first.assign("data.path=basic_test.tsv");
    CHECK_FALSE(first.data().is_optional("max_args"));
    Config same = Config::parse(data + "path = 'a.tsv'\n", "c.toml");
    same.assign("data.path=b.tsv");
    CHECK_FALSE(same.data().is_optional("max_args"));
    same.assign("data.task=copy");
    CHECK(same.data().is_optional("max_args"));
  }
  SECTION("masked tokens leave options of models for other targets") {
    const std::string model = "[model]\nd_model = 16\npooling = 'last'\n[data]\ntask = 'listops'\n";
    Config config = Config::parse(model, "c.toml");
    CHECK_THROWS_WITH(check_config(Config::parse(model + "masked = 0.1\n", "c.toml")),
                      Catch::Contains("model.pooling") && Catch::Contains("per_token = false"));
    config = Config::parse(model, "c.toml");
    config.assign("data.masked=0.1");
    CHECK_NOTHROW(check_config(config));
    CHECK(config.model().is_optional("pooling"));
    CHECK_FALSE(config.data().is_optional("task"));
    config.assign("model.pooling=mean");
    CHECK_THROWS_WITH(check_config(config), Catch::Contains("model.pooling"));
  }
  SECTION("nor does another section's type") {
    Config config = Config::parse(file + "kk = 3\n", "c.toml");
    config.assign("optimizer.type=adam");
    CHECK_THROWS_AS(read_section<Attention>(config.attention()), ConfigError);
  }
}

TEST_CASE("copies of a configuration are independent") {
  const Config config = Config::parse("[model]\nd_model = 32\n", "c.toml");
  Config copy = config;
  copy.assign("model.d_model=48");
  CHECK(config.given().at("model.d_model") == OptionValue(int64_t{32}));
}

TEST_CASE("a removed option is as if it had not been given") {
  Config config = Config::parse("[model]\nd_model = 32\nlayers = 2\n", "c.toml");
  config.erase("model", "d_model");
  CHECK_FALSE(config.model().has("d_model"));
  CHECK(config.given().size() == 1);
}

TEST_CASE("a section is found by its name") {
  Config config;
  CHECK(config.section("optimizer").section() == "optimizer");
  CHECK_THROWS_AS(config.section("optimiser"), ConfigError);
}

TEST_CASE("the text of an option names the variants or tasks that declare it, if any") {
  using longhand::train::options_named;
  using longhand::train::to_text;
  const auto rows = [](const std::string& name, const std::string& label) {
    const std::string text = to_text(options_named(name));
    int64_t n = 0;
    for (size_t at = text.find("\n  " + label + " "); at != std::string::npos;
         at = text.find("\n  " + label + " ", at + 1))
      ++n;
    return n;
  };
  CHECK(rows("train.steps", "set it by") == 1);
  CHECK(rows("train.steps", "variants") == 0);
  CHECK(rows("train.steps", "tasks") == 0);
  CHECK(rows("attention.pinv", "variants") == 1);
  CHECK(rows("attention.pinv", "tasks") == 0);
}
