// What checkpoints record of plugins. tests/cli/plugin_test.cpp loads one.
#include "longhand/train/plugin/load_plugin.h"

#include "longhand/core/error.h"
#include "longhand/train/config/config.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using longhand::test::message_of;

TEST_CASE("plugins: records are read back as they were written") {
  const std::vector<PluginRecord> records = {{"a", "1", "00", {"x", "y"}, {}},
                                             {"b", "2", "ff", {}, {"t"}}};
  CHECK(plugin_records(to_text(records), "file") == records);
  CHECK(plugin_records("", "file").empty());
  CHECK_THAT(message_of<DataError>([] { plugin_records("a\tb\n", "file.h5"); }),
             Contains("file.h5: expected five fields"));
}

TEST_CASE("plugins: those that a configuration names are used, and missed") {
  const std::vector<PluginRecord> records = {{"a", "1", "00", {"x", "y"}, {}},
                                             {"b", "2", "ff", {}, {"t"}}};
  const auto parse = [](const std::string& toml) { return Config::parse(toml, "config.toml"); };
  const Config none = parse("[attention]\ntype = \"t\"\n[data]\ntask = \"x\"\n"),
               layers = parse("[attention]\ntype = [\"softmax\", \"y\"]\n"),
               task = parse("[data]\ntask = \"t\"\n");
  CHECK(used_plugins(records, none).empty());
  CHECK(used_plugins(records, layers) == std::vector{records[0]});
  CHECK(used_plugins(records, task) == std::vector{records[1]});
  CHECK(check_plugins(records, none, "last.h5").empty());
  CHECK_THAT(
      message_of<ConfigError>([&] { check_plugins(records, layers, "last.h5"); }),
      Contains("last.h5 has attention.type = \"y\", which the plugin \"a\" (version 1, digest "
               "00) defines"));
}
