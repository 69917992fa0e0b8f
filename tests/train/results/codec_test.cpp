// One description of a struct writes its JSON, and reads it in both ways.
#include "longhand/train/results/codec.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "longhand/core/error.h"
#include "tests/support/catch.h"

namespace codec_sample {

using longhand::train::Is;

struct Part {
  std::string name{};
  int64_t count = 0;
};
void fields(Is<Part> auto& p, auto& f) {
  f("name", p.name);
  f("count", p.count);
}

struct Sample {
  int64_t step = 0;
  double loss = 0, seconds = 0;
  std::optional<double> best{};
  int ranks = 1;
  std::vector<Part> parts{};
  std::map<std::string, double> terms{};
  std::optional<Part> last{};
  std::string colour{};
};
void fields(Is<Sample> auto& s, auto& f) {
  f("step", s.step);
  f.number("loss", s.loss);
  f("seconds", s.seconds, 1e3);
  f("best", s.best);
  f.filled("ranks", s.ranks, 1);
  f.filled("parts", s.parts);
  f.filled("terms", s.terms);
  f.derived("twice", 2 * s.step);
  f("last", s.last);
  if (f.when(s.step > 0)) f.added("colour", s.colour);
}

}  // namespace codec_sample

using namespace longhand;
using codec_sample::Sample;

TEST_CASE("codec: fields are written in order, without what is empty") {
  CHECK(train::dump(train::json_of(Sample{})) ==
        R"({"step":0,"loss":0.0,"seconds":0.0,"twice":0})");
  Sample s{.step = 2, .loss = std::nan(""), .seconds = 1.23456, .ranks = 2, .colour = "red"};
  s.best = std::numeric_limits<double>::infinity();
  s.parts = {{"a", 1}, {"b", 2}};
  s.last = {"c", 3};
  s.terms["kl"] = 0.5;
  const train::Json json = train::json_of(s);
  CHECK(train::dump(json) ==
        R"({"step":2,"loss":"NaN","seconds":1.235,"best":"Infinity","ranks":2,)"
        R"("parts":[{"name":"a","count":1},{"name":"b","count":2}],"terms":{"kl":0.5},)"
        R"("twice":4,"last":{"name":"c","count":3},"colour":"red"})");
  const auto back = train::read_json<train::Lenient, Sample>(json);
  CHECK(train::json_of(back) == json);
}

TEST_CASE("codec: what Longhand wrote is read strictly, the rest as far as it goes") {
  const auto strict = [](const char* text) {
    return train::read_json<train::Strict, codec_sample::Part>(train::Json::parse(text));
  };
  CHECK(strict(R"({"name": "a", "count": 3})").count == 3);
  CHECK_THROWS_WITH(strict(R"({"name": "a"})"), Catch::Contains("key 'count' not found"));
  CHECK_THROWS_WITH(strict(R"({"name": 1, "count": 3})"), Catch::Contains("must be string"));
  CHECK_THROWS_AS(strict(R"({"name": "a", "count": 1e300})"), DataError);
  CHECK_THROWS(strict("[]"));
  const auto lenient = train::read_json<train::Lenient, Sample>(train::Json::parse(
      R"({"step": "x", "ranks": true, "parts": [1, {"name": "a"}], "terms": {"kl": null},)"
      R"("last": 3, "best": "much"})"));
  CHECK(lenient.step == 0);
  CHECK(std::isnan(lenient.loss));
  CHECK(lenient.ranks == 1);
  REQUIRE(lenient.parts.size() == 1);
  CHECK(lenient.parts[0].name == "a");
  CHECK(std::isnan(lenient.terms.at("kl")));
  CHECK_FALSE(lenient.last);
  CHECK_FALSE(lenient.best);
}
