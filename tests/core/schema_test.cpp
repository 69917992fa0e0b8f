#include "longhand/core/schema.h"

#include <algorithm>
#include <limits>

#include "longhand/core/error.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

using Ints = std::vector<int64_t>;
using Texts = std::vector<std::string>;
using Catch::Contains;

enum class Order { rows, columns };

// Every kind of option.
struct Everything {
  bool flag = false;
  int64_t count = 3, half = 0;
  double rate = 0.5, decay = 0;
  std::string path, kernel = "relu";
  Order order = Order::rows;
  Ints sizes{4};
  Texts types{"a"};
  double slope = 0.25;
  int64_t steps = 10;

  void describe(OptionVisitor& v) {
    v.boolean("flag", flag, "a flag");
    v.integer("count", count, {1, 1 << 20}, "a count");
    half = count / 2;
    v.integer("half", half, {0}, "half of it", "count / 2");
    v.number("rate", rate, NumberRange::above(0), "a rate");
    v.number("decay", decay, NumberRange::fraction(), "a decay");
    v.text("path", path, "a path", "none");
    v.choice("kernel", kernel, {"relu", "exp"}, "a kernel");
    v.choice("order", order, {{"rows", Order::rows}, {"columns", Order::columns}}, "an order");
    v.integers("sizes", sizes, {1, 8}, "sizes");
    v.words("types", types, {"a", "b"}, "types");
    v.when(kernel == "relu", "kernel = \"relu\"", [&] {
      v.number("slope", slope, {}, "a slope");
      v.when(flag, "flag = true", [&] { v.integer("steps", steps, {1}, "steps"); });
      v.require(slope != 3, "slope", "expected another slope");
    });
    v.require(half <= count, "half", "expected at most count");
  }
};

Everything read(const std::map<std::string, OptionValue>& values) {
  Options section("s");
  for (const auto& [key, value] : values) section.set(key, value, "c.toml:1:1");
  return read_section<Everything>(section);
}

std::string error_of(const std::map<std::string, OptionValue>& values) {
  try {
    read(values);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("schema: one description reads every kind of option") {
  const Everything defaults = read({});
  CHECK(defaults.count == 3);
  CHECK(defaults.half == 1);
  CHECK(defaults.order == Order::rows);
  const Everything o = read({{"flag", true},
                             {"count", 9},
                             {"rate", 2},
                             {"decay", 0.9},
                             {"path", "x"},
                             {"order", "columns"},
                             {"sizes", Ints{1, 8}},
                             {"types", "b"},
                             {"slope", -1.5},
                             {"steps", 4}});
  CHECK(o.flag);
  CHECK(o.half == 4);
  CHECK(o.rate == 2);
  CHECK(o.decay == 0.9);
  CHECK(o.path == "x");
  CHECK(o.order == Order::columns);
  CHECK(o.sizes == Ints{1, 8});
  CHECK(o.types == Texts{"b"});
  CHECK(o.slope == -1.5);
  CHECK(o.steps == 4);
  // The values given are the defaults of what is not in the section.
  Everything given;
  given.count = 7;
  CHECK(read_options(Options("s"), given).half == 3);
}

TEST_CASE("schema: messages name place, option, value and what is expected") {
  CHECK(error_of({{"count", 0}}) ==
        "c.toml:1:1: s.count = 0: expected an integer from 1 to 1048576");
  CHECK_THAT(error_of({{"rate", 0}}), Contains("s.rate = 0: expected a finite number above 0"));
  CHECK_THAT(error_of({{"decay", 1}}),
             Contains("expected a finite number of at least 0 and below 1"));
  CHECK_THAT(error_of({{"flag", "yes"}}), Contains("s.flag = \"yes\": expected true or false"));
  CHECK_THAT(error_of({{"path", 3}}), Contains("s.path = 3: expected text in quotes"));
  CHECK_THAT(error_of({{"order", "row"}}),
             Contains("expected one of rows, columns") && Contains("did you mean rows?"));
  CHECK_THAT(error_of({{"sizes", Ints{1, 9}}}), Contains("expected integers, each 1 to 8"));
  CHECK_THAT(error_of({{"sizes", Ints{}}}), Contains("at least one integer"));
  CHECK_THAT(error_of({{"sizes", "a"}}), Contains("expected an integer or a list of integers"));
  CHECK_THAT(error_of({{"types", Texts{"a", "c"}}}), Contains("expected one of a, b, or a list"));
}

TEST_CASE("schema: options that do not apply are refused, and say with which value they do") {
  CHECK(error_of({{"kernel", "exp"}, {"slope", 1}}) ==
        "c.toml:1:1: s.slope = 1: this option applies only with kernel = \"relu\"");
  CHECK_THAT(error_of({{"steps", 1}}), Contains("s.steps = 1") && Contains("flag = true"));
  CHECK(error_of({{"steps", 1}, {"flag", true}}).empty());
  // Nor do conditions between them hold elsewhere.
  Everything three;
  three.slope = 3;
  Options exp("s");
  CHECK_THROWS_WITH(read_section(exp, three), Contains("expected another slope"));
  exp.set("kernel", "exp");
  CHECK_NOTHROW(read_section(exp, three));
  // Left alone where the file meant another type.
  Options section("s");
  section.set("kernel", "exp");
  section.set("slope", 1, "", true);
  EffectiveValues values;
  CHECK(read_section<Everything>(section, {}, &values).slope == 0.25);
  CHECK_FALSE(values.contains("slope"));
}

TEST_CASE("schema: values of the wrong type are refused") {
  const std::map<std::string, OptionValue> values = {{"flag", true},
                                                     {"count", 3},
                                                     {"rate", 3.5},
                                                     {"path", "3"},
                                                     {"kernel", "relu"},
                                                     {"sizes", Ints{3, 4}},
                                                     {"types", Texts{"a", "b"}}};
  // A number may be an integer, text any word, and a list a single item.
  const std::map<std::string, Texts> accepted = {
      {"flag", {"flag"}},           {"count", {"count"}},   {"rate", {"rate", "count"}},
      {"path", {"path", "kernel"}}, {"kernel", {"kernel"}}, {"sizes", {"sizes", "count"}},
      {"types", {"types"}}};
  for (const auto& [option, from] : accepted)
    for (const auto& [kind, value] : values) {
      INFO(option << " = " << to_string(value));
      const bool accepts = std::find(from.begin(), from.end(), kind) != from.end();
      CHECK(error_of({{option, value}}).empty() == accepts);
    }
  for (const double x :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK_FALSE(error_of({{"slope", x}}).empty());
}

TEST_CASE("schema: the effective values are those that apply, given or default") {
  Options section("s");
  section.set("count", 9);
  section.set("rate", 2);
  section.set("sizes", Ints{8});
  section.set("path", "x", "", true);
  section.set("decay", "fast", "", true);  // meant for another type: not accepted, so the default
  section.set("colour", "red", "", true);
  EffectiveValues values;
  const Everything o = read_section<Everything>(section, {}, &values);
  CHECK(o.decay == 0);
  CHECK(values.size() == 11);  // all but steps
  CHECK_FALSE(values.contains("steps"));
  CHECK(values.at("count").value == OptionValue(9));
  CHECK(values.at("rate").value == OptionValue(2.0));
  CHECK(values.at("sizes").value == OptionValue(8));
  CHECK(values.at("types").value == OptionValue("a"));
  CHECK(values.at("order").value == OptionValue("rows"));
  CHECK(values.at("half").value == OptionValue(4));
  for (const char* key : {"count", "rate", "sizes", "path"}) CHECK(values.at(key).given);
  for (const char* key : {"half", "decay", "types"}) CHECK_FALSE(values.at(key).given);
}

TEST_CASE("schema: conditions name the value that was read") {
  CHECK(error_of({{"count", 4}, {"half", 5}}) == "c.toml:1:1: s.half = 5: expected at most count");
  Everything three;
  three.slope = 3;
  CHECK_THROWS_WITH(read_section(Options("s"), three),
                    "s.slope = 3.0 (the default): expected another slope");
  // Of a value that was not accepted too.
  Options section("s");
  section.set("slope", "steep", "c.toml:1:1", true);
  CHECK_THROWS_WITH(read_section(section, three),
                    "s.slope = 3.0 (the default): expected another slope");
}

TEST_CASE("schema: unknown options name the nearest declared one, whether it applies or not") {
  CHECK(error_of({{"cuont", 1}}) == "c.toml:1:1: s.cuont: unknown option; did you mean count?");
  CHECK_THAT(error_of({{"kernel", "exp"}, {"slop", 1}}), Contains("did you mean slope?"));
  CHECK_THAT(error_of({{"zzz", 1}}), Contains("known options: flag, count, half"));
}

TEST_CASE("schema: documentation has every option with range, default, meaning and condition") {
  const Schema schema = schema_of<Everything>();
  REQUIRE(names_of(schema) == Texts{"flag", "count", "half", "rate", "decay", "path", "kernel",
                                    "order", "sizes", "types", "slope", "steps"});
  const auto field = [&](const std::string& name) {
    for (const Field& f : schema)
      if (f.name == name) return f;
    return Field{};
  };
  CHECK(field("flag").values == "true or false");
  CHECK(field("count").values == "1 to 2^20");
  CHECK(field("count").default_value == "3");
  CHECK(field("half").default_value == "count / 2");
  CHECK(field("half").values == "at least 0");
  CHECK(field("rate").values == "above 0");
  CHECK(field("decay").values == "at least 0 and below 1");
  CHECK(field("decay").default_value == "0.0");
  CHECK(field("path").values.empty());
  CHECK(field("path").default_value == "none");
  CHECK(field("order").values == "rows or columns");
  CHECK(field("order").default_value == "\"rows\"");
  CHECK(field("sizes").default_value == "4");
  CHECK(field("types").default_value == "\"a\"");
  CHECK(field("slope").condition == "kernel = \"relu\"");
  CHECK(field("steps").condition == "kernel = \"relu\", flag = true");

  CHECK_THAT(to_markdown(schema),
             Catch::StartsWith("| option | values | default | meaning |\n| --- |") &&
                 Contains("| `count` | 1 to 2^20 | 3 | a count |\n") &&
                 Contains("| `slope` | number | 0.25 | a slope; with kernel = \"relu\" |\n"));
  const std::string text = to_text(schema, 50);
  CHECK_THAT(text, Contains("  count   a count (1 to 2^20; default 3)\n"));
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    CHECK(end - begin <= 50);
    begin = end + 1;
  }
}
