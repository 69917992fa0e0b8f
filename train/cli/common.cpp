#include "longhand/train/cli/common.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace longhand::cli {

Json json_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void apply(const Common& common, train::Config& config) {
  const char* seed = std::getenv("LONGHAND_SEED");
  if (seed && *seed) config.assign(std::string("train.seed=") + seed, "LONGHAND_SEED");
  for (const std::string& assignment : common.set) config.assign(assignment);
  if (common.seed) config.assign("train", "seed", static_cast<int64_t>(*common.seed), "--seed");
}

void report_ignored(const std::vector<std::string>& ignored, bool quiet) {
  std::string names;
  for (const std::string& name : ignored) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty() && !quiet)
    fmt::print(stderr, "longhand: ignored, because they do not apply here: {}\n", names);
}

std::string with_commas(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    out += digits[i];
    const size_t left = digits.size() - 1 - i;
    if (left > 0 && left % 3 == 0 && digits[i] != '-') out += ',';
  }
  return out;
}

}  // namespace longhand::cli
