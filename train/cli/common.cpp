#include "longhand/train/cli/common.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "longhand/train/cli/output.h"
#include "longhand/train/experiment.h"

namespace longhand::cli {

void print_json(const Json& json) {
  print_stdout("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::string shell_word(const std::string& word) {
  constexpr const char* plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=-,:+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') out.append("'\\'");
    out.push_back(c);
  }
  out.push_back('\'');
  return out;
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string out = "longhand", word;
  std::getline(in, word, '\0');  // the path of the program
  while (std::getline(in, word, '\0')) out.append(" ").append(shell_word(word));
  return out;
}

uint64_t seed_or_default(const Common& common) {
  Common given;
  given.seed = common.seed;
  train::Config config;
  apply(given, config);
  return train::read_seed(config);
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
    print_stderr("longhand: ignored, because they do not apply here: {}\n", names);
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
