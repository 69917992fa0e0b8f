#include "longhand/core/options.h"

#include "longhand/core/error.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

using Ints = std::vector<int64_t>;
using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("options hold what was given, and where") {
  Options o("attention");
  CHECK(o.section() == "attention");
  o.set("k", 64, "config.toml:12:3");
  o.set("causal", true);
  REQUIRE(o.find("k"));
  CHECK(o.find("k")->value == OptionValue(64));
  CHECK(o.find("k")->where == "config.toml:12:3");
  CHECK_FALSE(o.find("k")->optional);
  CHECK(o.has("causal"));
  CHECK(o.keys() == Texts{"causal", "k"});
  CHECK(o.find("kk") == nullptr);
  CHECK_FALSE(o.is_optional("kk"));
  o.set("k", 8, "", true);
  CHECK(o.find("k")->value == OptionValue(8));
  CHECK(o.is_optional("k"));
  o.erase("k");
  CHECK_FALSE(o.has("k"));
  o.erase("k");
}

TEST_CASE("copies of options are independent") {
  Options o("s");
  o.set("a", 1);
  Options copy = o;
  copy.set("a", 2);
  copy.set("b", 3);
  CHECK(o.find("a")->value == OptionValue(1));
  CHECK_FALSE(o.has("b"));
}

TEST_CASE("keys that are not known are refused") {
  Options o("attention");
  const Texts known = {"landmarks", "iterations"};
  CHECK_NOTHROW(o.check_known(known));
  o.set("iterations", 3);
  CHECK_NOTHROW(o.check_known(known));
  o.set("lanmarks", 3, "config.toml:3:1");
  CHECK_THROWS_WITH(o.check_known(known),
                    "config.toml:3:1: attention.lanmarks: unknown option; did you mean landmarks?");
  o.erase("lanmarks");
  o.set("colour", "red");
  CHECK_THROWS_WITH(o.check_known(known),
                    "attention.colour: unknown option; known options: landmarks, iterations");
  o.set("colour", "red", "", true);
  CHECK_NOTHROW(o.check_known(known));

  Options empty("x");
  empty.set("y", 1);
  CHECK_THROWS_WITH(empty.check_known({}), "x.y: unknown option; this section has no options");
}

TEST_CASE("conditions on options name place, option and value") {
  Options o("model");
  o.set("heads", 3, "config.toml:2:9");
  CHECK_NOTHROW(o.require(true, "heads", "no"));
  CHECK_THROWS_WITH(o.require(false, "heads", "must divide d_model"),
                    "config.toml:2:9: model.heads = 3: must divide d_model");
  CHECK_THROWS_WITH(o.require(false, "path", "a file is wanted"), "model.path: a file is wanted");
  Options anonymous;
  anonymous.set("k", true);
  CHECK_THROWS_WITH(anonymous.require(false, "k", "no"), "k = true: no");
}

TEST_CASE("values are written as TOML reads them") {
  CHECK(to_string(OptionValue(true)) == "true");
  CHECK(to_string(OptionValue(-3)) == "-3");
  CHECK(to_string(OptionValue(0.1)) == "0.1");
  CHECK(to_string(OptionValue(3.0)) == "3.0");
  CHECK(to_string(OptionValue(1e-5)) == "1e-05");
  CHECK(to_string(OptionValue(1e22)) == "1e+22");
  CHECK(to_string(OptionValue("a \"b\" \\ \n\x7f")) == "\"a \\\"b\\\" \\\\ \\u000a\\u007f\"");
  CHECK(to_string(OptionValue("Nyström")) == "\"Nyström\"");
  CHECK(to_string(OptionValue(Ints{})) == "[]");
  CHECK(to_string(OptionValue(Ints{1, -2})) == "[1, -2]");
  CHECK(to_string(OptionValue(Texts{"a", "b"})) == "[\"a\", \"b\"]");
}

TEST_CASE("nearest finds slips of the fingers, not other words") {
  const Texts words = {"landmarks", "iterations", "type", "k"};
  CHECK(nearest("landmark", words) == "landmarks");
  CHECK(nearest("lnadmarks", words) == "landmarks");
  CHECK(nearest("lamdmarcs", words) == "landmarks");
  CHECK(nearest("lamtmarcs", words) == "landmarks");
  CHECK(nearest("lamtnarcs", words).empty());
  CHECK(nearest("iteratons", words) == "iterations");
  CHECK(nearest("tpye", words) == "type");
  CHECK(nearest("typo", words) == "type");
  CHECK(nearest("type", words) == "type");
  CHECK(nearest("features", words).empty());
  CHECK(nearest("m", words).empty());
  CHECK(nearest("", words).empty());
  CHECK(nearest("abc", {}).empty());
  CHECK(nearest("rate", {"rats", "rate", "crate"}) == "rate");
  CHECK(suggestion("landmark", words) == "; did you mean landmarks?");
  CHECK(suggestion("features", words).empty());
}

TEST_CASE("lists of words are written for readers, and read") {
  CHECK(comma_list({"a", "b", "c"}) == "a, b, c");
  CHECK(or_list({"a", "b", "c"}) == "a, b or c");
  CHECK(or_list({"a"}) == "a");
  CHECK((comma_list({}) + or_list({})).empty());
  CHECK(split_at("a,,b,", ',') == Texts{"a", "", "b"});
  CHECK(split_at(",", ',') == Texts{""});
  CHECK(split_at("a", ',') == Texts{"a"});
  CHECK(split_at("", ',').empty());
}
