// Plugins, with the one of examples/plugin: its variant and its task in every command, what checkpoints
// record of it, and what is refused.
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/plugin/plugin.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string config = R"([model]
d_model = 8
heads = 2
layers = 1
d_mlp = 8
[attention]
type = "logistic"
[data]
task = "majority"
length = 9
train_size = 32
validation_size = 8
test_size = 8
[train]
steps = 4
batch_size = 4
)";

/// A folder with a configuration and a copy of the plugin, example.so.
class PluginFolder : public TemporaryDirectory {
 public:
  PluginFolder() {
    write_text(*this / "config.toml", config);
    write_text(*this / "example.so", read_text(LONGHAND_EXAMPLE_PLUGIN));
  }
  /// Writes a copy of the plugin with these bytes replaced, wherever they are.
  void write_changed(const std::string& name, const std::string& from,
                     const std::string& to) const {
    std::string bytes = read_text(LONGHAND_EXAMPLE_PLUGIN);
    REQUIRE(from.size() == to.size());
    size_t count = 0;
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; ++count)
      bytes.replace(at, from.size(), to);
    REQUIRE(count > 0);
    write_text(*this / name, bytes);
  }
};

}  // namespace

TEST_CASE("plugin: a run needs it, records it, and names it when it is missing") {
  const PluginFolder folder;
  const auto at = [&](const Words& words) { return run(words, folder.path()); };
  const Words train = {"train", "config.toml", "--out", "run", "--quiet"};
  CHECK_THAT(at(train).err, Contains("majority"));
  CHECK(at(train).code == 2);

  succeed({"--plugin", "example.so", "train", "config.toml", "--out", "run", "--quiet"},
          folder.path());
  const auto summary = nlohmann::json::parse(read_text(folder / "run/summary.json"));
  REQUIRE(summary["plugins"].size() == 1);
  CHECK(summary["plugins"][0]["name"] == "example");
  const std::string finished =
      succeed({"train", "--resume", "run", "--json", "--plugin", "example.so"}, folder.path()).out;
  CHECK(nlohmann::json::parse(finished)["plugins"] == summary["plugins"]);
  const train::Checkpoint saved = train::load(folder / "run/checkpoints/last.h5");
  REQUIRE(saved.plugins.size() == 1);
  CHECK(saved.plugins[0].version == "1.0");
  CHECK(saved.plugins[0].variants == Words{"logistic"});
  CHECK(saved.plugins[0].tasks == Words{"majority"});

  const Words longer = {"train", "--resume", "run", "--set", "train.steps=6"};
  for (const Words& words : {longer, Words{"evaluate", "run"}}) {
    const Outcome outcome = at(words);
    CHECK(outcome.code == 2);
    CHECK_THAT(outcome.err,
               Contains("the plugin \"example\" (version 1.0, digest " + saved.plugins[0].digest) &&
                   Contains("pass --plugin FILE.so"));
  }
  succeed({"evaluate", "run", "--quiet"}, folder.path(),
          {{"LONGHAND_PLUGINS", (folder / "example.so").string()}});

  // The same plugin, built another time.
  write_text(folder / "other.so", read_text(folder / "example.so") + "x");
  Words other = longer;
  other.insert(other.end(), {"--plugin", "other.so"});
  const Outcome resumed = succeed(other, folder.path());
  CHECK_THAT(resumed.err, Contains("warning: the plugin \"example\" is not the one that") &&
                              Contains("results may differ"));
  // A run that does not use it records nothing.
  write_text(folder / "config.toml", tiny_config);
  succeed({"train", "config.toml", "--out", "tiny", "--quiet", "--set", "train.steps=2", "--plugin",
           "example.so"},
          folder.path());
  CHECK(train::load(folder / "tiny/checkpoints/last.h5").plugins.empty());
}

TEST_CASE("plugin: memory is estimated by its own code") {
  const PluginFolder folder;
  const auto activations = [&](const std::string& length) {
    const std::string out = succeed({"--plugin", "example.so", "train", "config.toml", "--estimate",
                                     "--json", "--set", "data.length=" + length},
                                    folder.path())
                                .out;
    return nlohmann::json::parse(out).at("memory").at("activations").get<double>();
  };
  // Weights, and scores, of 4 sequences and 2 heads.
  CHECK(activations("2049") > 2 * 4 * 4 * 2 * 2048. * 2048.);
  CHECK(activations("2049") > 3.5 * activations("1025"));
}

TEST_CASE("plugin: its names are as good as those of the library") {
  const PluginFolder folder;
  const auto out = [&](Words words) {
    words.insert(words.end(), {"--plugin", "example.so"});
    return succeed(words, folder.path()).out;
  };
  CHECK_THAT(out({"variants"}), Contains("logistic: ") && Contains("plugin example 1.0"));
  CHECK_THAT(out({"help", "attention.logistic"}), Contains("-log(max_length)"));
  CHECK_THAT(out({"data", "tasks"}), Contains("majority: which of two symbols"));
  CHECK_THAT(out({"data", "hash", "majority", "--count", "4"}), Contains("train (4 examples)"));
  CHECK_THAT(out({"check", "attention", "--variant", "logistic", "--check", "padding", "--check",
                  "threads"}),
             Contains("4 of 4 checks passed"));
  // The weights of the formula, for each of its cases.
  CHECK_THAT(out({"check", "attention", "--variant", "logistic", "--check", "definition"}),
             Contains("2 of 2 checks passed") && !Contains("note: "));
  // These start processes, which load the plugin too.
  CHECK_THAT(out({"bench", "attention", "--attention", "logistic", "--length", "16"}),
             Contains("logistic"));
  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"config.toml\"\nseeds = 1\n[[axis]]\n"
             "attention.type = [\"logistic\", \"mean\"]\n");
  out({"ablate", "sweep.toml", "--out", "sweep", "--quiet"});
  CHECK_THAT(read_text(folder / "sweep/results.csv"), Contains("logistic"));
  CHECK_THAT(read_text(folder / "sweep/results.json"), Contains("--plugin"));
}

TEST_CASE("plugin: what cannot be loaded is refused with the reason") {
  const PluginFolder folder;
  const auto refusal = [&](const std::string& file) {
    const Outcome outcome = run({"variants", "--plugin", file}, folder.path());
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  CHECK_THAT(refusal("missing.so"), Contains("missing.so: there is no such plugin"));
  CHECK_THAT(refusal("config.toml"), Contains("cannot load the plugin"));
  // Cut off anywhere, it is refused; the linker would end the process with SIGBUS.
  const std::string whole = read_text(LONGHAND_EXAMPLE_PLUGIN);
  for (const size_t size : {size_t{3}, size_t{40}, size_t{64}, size_t{100}, size_t{5000},
                            whole.size() / 4, whole.size() / 2, 3 * whole.size() / 4}) {
    CAPTURE(size);
    write_text(folder / "cut.so", whole.substr(0, size));
    CHECK_THAT(refusal("cut.so"), Contains("cut.so: the plugin is cut off") ||
                                      Contains("cut.so: cannot load the plugin"));
  }
  folder.write_changed("none.so", "longhand_plugin", "longhand_plugyn");
  CHECK_THAT(refusal("none.so"), Contains("none.so is not a Longhand plugin"));
  folder.write_changed("later.so", std::string(LONGHAND_VERSION "\0", 6),
                       std::string("0.9.0\0", 6));
  CHECK_THAT(refusal("later.so"),
             Contains("compiled with Longhand 0.9.0, expected " LONGHAND_VERSION) &&
                 Contains("build the plugin again"));
  std::string layout(sizeof train::plugin_layout, '\0');
  std::memcpy(layout.data(), &train::plugin_layout, layout.size());
  folder.write_changed("headers.so", layout, "longhand");
  CHECK_THAT(refusal("headers.so"), Contains("compiled with other headers than this Longhand"));
  folder.write_changed("symbol.so", "_ZN8longhand7sigmoid", "_ZN8longhand7sigmoix");
  CHECK_THAT(refusal("symbol.so"), Contains("undefined symbol: longhand::sigmoix("));
  fs::create_directory(folder / "a:b");
  write_text(folder / "a:b/example.so", read_text(LONGHAND_EXAMPLE_PLUGIN));
  CHECK_THAT(refusal("a:b/example.so"), Contains("expected a path without colons"));
  write_text(folder / "twice.so", read_text(folder / "example.so") + "x");
  CHECK_THAT(run({"variants", "--plugin", "example.so", "--plugin", "twice.so"}, folder.path()).err,
             Contains("a plugin \"example\" is already loaded"));
  const Outcome by_variable =
      run({"variants"}, folder.path(), {{"LONGHAND_PLUGINS", "missing.so"}});
  CHECK_THAT(by_variable.err, Contains("LONGHAND_PLUGINS: missing.so: there is no such plugin"));
}
