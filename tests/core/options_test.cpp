#include "longhand/core/options.h"

#include <limits>

#include "longhand/core/error.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

using Ints = std::vector<int64_t>;
using Texts = std::vector<std::string>;
using Catch::Contains;

}  // namespace

TEST_CASE("options give their values, or the default") {
  Options o("attention");
  CHECK(o.section() == "attention");
  o.set("k", 64);
  o.set("rate", 0.5);
  o.set("whole", 2);
  o.set("type", "linear");
  o.set("causal", true);
  o.set("sizes", Ints{3, 1});
  o.set("size", 5);
  o.set("none", Texts{});
  CHECK(o.get_int("k", 1) == 64);
  CHECK(o.get_double("rate", 0) == 0.5);
  CHECK(o.get_double("whole", 0) == 2.0);
  CHECK(o.get_string("type", "") == "linear");
  CHECK(o.get_choice("type", "softmax", {"softmax", "linear"}) == "linear");
  CHECK(o.get_bool("causal", false));
  CHECK(o.get_ints("sizes", {}) == Ints{3, 1});
  CHECK(o.get_ints("size", {}) == Ints{5});
  CHECK(o.get_ints("none", {1}).empty());

  CHECK(o.get_int("a", 7) == 7);
  CHECK(o.get_double("b", 0.25) == 0.25);
  CHECK(o.get_string("c", "x") == "x");
  CHECK(o.get_choice("d", "y", {"y", "z"}) == "y");
  CHECK_FALSE(o.get_bool("e", false));
  CHECK(o.get_ints("f", {1, 2}) == Ints{1, 2});
  CHECK_NOTHROW(o.check_all_read());
}

TEST_CASE("values of the wrong type are refused") {
  Options o("s");
  o.set("i", 3);
  o.set("d", 3.0);
  o.set("b", true);
  o.set("t", "3");
  o.set("is", Ints{3});
  o.set("ts", Texts{"3"});
  for (const char* key : {"d", "b", "t", "is", "ts"})
    CHECK_THROWS_AS(o.get_int(key, 0), ConfigError);
  for (const char* key : {"b", "t", "is", "ts"}) CHECK_THROWS_AS(o.get_double(key, 0), ConfigError);
  for (const char* key : {"i", "d", "t", "is"})
    CHECK_THROWS_AS(o.get_bool(key, false), ConfigError);
  for (const char* key : {"i", "d", "b", "is", "ts"}) {
    CHECK_THROWS_AS(o.get_string(key, ""), ConfigError);
    CHECK_THROWS_AS(o.get_choice(key, "a", {"a"}), ConfigError);
  }
  for (const char* key : {"d", "b", "t", "ts"}) CHECK_THROWS_AS(o.get_ints(key, {}), ConfigError);
}

TEST_CASE("messages name place, key, value and what is expected") {
  Options o("attention");
  o.set("k", -4, "config.toml:12:3");
  CHECK_THROWS_WITH(o.get_int("k", 1, 1),
                    "config.toml:12:3: attention.k = -4: expected an integer of at least 1");
  CHECK_THROWS_WITH(o.get_int("k", 1, 1, 8), Contains("expected an integer from 1 to 8"));
  o.set("k", 9);
  CHECK_THROWS_WITH(o.get_int("k", 1, std::numeric_limits<int64_t>::min(), 8),
                    "attention.k = 9: expected an integer of at most 8");
  o.set("rate", 1.5, "--set");
  CHECK_THROWS_WITH(o.get_double("rate", 0, 0, 1),
                    "--set: attention.rate = 1.5: expected a finite number from 0.0 to 1.0");
  CHECK_THROWS_WITH(o.get_int("rate", 0), "--set: attention.rate = 1.5: expected an integer");
  o.set("type", "sofmax");
  CHECK_THROWS_WITH(
      o.get_choice("type", "linear", {"linear", "softmax"}),
      "attention.type = \"sofmax\": expected one of linear, softmax; did you mean softmax?");
  o.set("type", "transmogrify");
  CHECK_THROWS_WITH(o.get_choice("type", "linear", {"linear", "softmax"}),
                    "attention.type = \"transmogrify\": expected one of linear, softmax");
  Options anonymous;
  anonymous.set("k", true);
  CHECK_THROWS_WITH(anonymous.get_int("k", 0), "k = true: expected an integer");
}

TEST_CASE("bounds belong to the range; NaN and infinity to none") {
  Options o;
  o.set("i", 8);
  CHECK(o.get_int("i", 0, 8, 8) == 8);
  CHECK_THROWS_AS(o.get_int("i", 0, 9), ConfigError);
  CHECK_THROWS_AS(o.get_int("i", 0, 0, 7), ConfigError);
  o.set("d", 1);
  CHECK(o.get_double("d", 0, 1, 1) == 1);
  CHECK_THROWS_AS(o.get_double("d", 0, 1.5), ConfigError);
  for (const double x :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    o.set("x", x);
    CHECK_THROWS_AS(o.get_double("x", 0), ConfigError);
  }
}

TEST_CASE("what nobody reads is unknown") {
  Options o("attention");
  o.get_int("landmarks", 8);
  o.get_int("iterations", 6);
  CHECK_NOTHROW(o.check_all_read());
  o.set("lanmarks", 3, "config.toml:3:1");
  CHECK_THROWS_WITH(o.check_all_read(),
                    "config.toml:3:1: attention.lanmarks: unknown option; did you mean landmarks?");
  o.erase("lanmarks");
  CHECK_NOTHROW(o.check_all_read());
  o.set("colour", "red");
  CHECK_THROWS_WITH(o.check_all_read(),
                    "attention.colour: unknown option; known options: iterations, landmarks");
  CHECK(o.has("colour"));  // asking is not reading
  CHECK_THROWS_AS(o.check_all_read(), ConfigError);
  o.erase("colour");
  CHECK_FALSE(o.has("colour"));
  o.erase("colour");

  Options empty("x");
  empty.set("y", 1);
  CHECK_THROWS_WITH(empty.check_all_read(), "x.y: unknown option; this section has no options");
}

TEST_CASE("optional values may stay unread, and are dropped where they do not fit") {
  Options o("attention");
  o.set("features", -1, "config.toml:4:1", true);
  CHECK_NOTHROW(o.check_all_read());
  CHECK(o.get_int("features", 16, 1) == 16);
  CHECK_FALSE(o.has("features"));
  o.set("features", 20, "", true);
  CHECK(o.get_int("features", 16, 1) == 20);
  CHECK(o.has("features"));
  o.set("kernel", "positive", "", true);
  CHECK(o.get_choice("kernel", "softmax", {"softmax", "gaussian"}) == "softmax");
  CHECK(o.effective().at("kernel") == OptionValue("softmax"));
  o.set("features", 3);  // set again, it is not optional any more
  o.set("colour", 3);
  CHECK_THROWS_AS(Options(o).check_all_read(), ConfigError);
}

TEST_CASE("copies share what was set and read") {
  const Options o("s");
  Options copy = o;
  copy.set("a", 1);
  CHECK(o.get_int("a", 0) == 1);
  CHECK_NOTHROW(copy.check_all_read());
}

TEST_CASE("the effective options are those that were read") {
  Options o("s");
  o.set("b", 3);
  o.set("unread", 1);
  o.get_double("b", 0);
  o.get_string("a", "default");
  const std::map<std::string, OptionValue> effective = o.effective();
  REQUIRE(effective.size() == 2);
  CHECK(effective.begin()->first == "a");
  CHECK(effective.at("a") == OptionValue("default"));
  CHECK(effective.at("b") == OptionValue(3.0));
  o.set("b", 4);
  o.get_double("b", 0);
  CHECK(o.effective().at("b") == OptionValue(4.0));
}

TEST_CASE("conditions found later name the option too") {
  Options o("model");
  o.set("heads", 3, "config.toml:2:9");
  o.get_int("heads", 1);
  o.get_int("d_model", 64);
  CHECK_NOTHROW(o.require(true, "heads", "no"));
  CHECK_THROWS_WITH(o.require(false, "heads", "must divide d_model"),
                    "config.toml:2:9: model.heads = 3: must divide d_model");
  CHECK_THROWS_WITH(o.require(false, "d_model", "must be a multiple of heads"),
                    "model.d_model = 64 (the default): must be a multiple of heads");
  CHECK_THROWS_WITH(o.require(false, "path", "a file is wanted"), "model.path: a file is wanted");
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
  CHECK(nearest("iteratons", words) == "iterations");
  CHECK(nearest("tpye", words) == "type");
  CHECK(nearest("typo", words) == "type");
  CHECK(nearest("type", words) == "type");
  CHECK(nearest("features", words).empty());
  CHECK(nearest("m", words).empty());
  CHECK(nearest("", words).empty());
  CHECK(nearest("abc", {}).empty());
  CHECK(nearest("rate", {"rats", "rate", "crate"}) == "rate");
}
