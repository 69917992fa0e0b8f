#include "longhand/train/cli/common.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cli/ranks.h"

namespace longhand::cli {

std::string bounded(const std::string& text, size_t longest) {
  constexpr std::string_view omitted = " [...] ";
  if (text.size() <= longest) return text;
  size_t begin = (longest - omitted.size()) / 2, end = text.size() - begin;
  const auto continues = [&](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80; };
  while (begin > 0 && continues(begin)) --begin;
  while (end < text.size() && continues(end)) ++end;
  return text.substr(0, begin).append(omitted).append(text, end);
}

void write_or_print(const std::string& file, const std::string& text) {
  if (!file.empty()) return data::write_file_durably(file, text);
  std::string lines;
  for (size_t i = 0; i < text.size(); ++i)
    if (text.compare(i, 2, "\r\n") != 0) lines += text[i];
  print_stdout("{}", lines);
}

std::string shell_word(const std::string& word) {
  constexpr const char* plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=-,:+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  return "'" + replaced(word, '\'', "'\\''") + "'";
}

std::string set_flags(const Common& common) {
  std::string out;
  for (const std::string& assignment : common.set) out += " --set " + shell_word(assignment);
  return out;
}

std::string command_line() {
  static const std::string line = [] {
    std::ifstream in("/proc/self/cmdline", std::ios::binary);
    std::string out = program_words(), word;
    std::getline(in, word, '\0');  // the path of the program
    while (std::getline(in, word, '\0')) out.append(" ").append(shell_word(word));
    return out;
  }();
  return line;
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

void apply_to_data(const Common& common, train::Config& config) {
  apply(common, config);
  if (const auto* seed = config.train().find("seed"); seed && !config.data().has("seed"))
    config.assign("data", "seed", OptionValue(seed->value), std::string(seed->where));
}

train::SavedModel load_run(const Common& common, const std::string& run) {
  train::SavedModel saved = train::load_model(run, common.checkpoint);
  check_finite(saved.checkpoint, saved.file);
  if (!common.trust_paths) saved.check_paths({"data.path"}, &common.set);
  saved.accept_data = common.accept_data;
  return saved;
}

train::LoadedRun open_run(const Common& common, train::SavedModel saved, bool quiet,
                          train::RunOptions options) {
  for (const std::string& assignment : common.set) saved.config.assign(assignment);
  options.split = common.split;
  train::LoadedRun run = [&] {
    const Waiting waiting(quiet, "preparing data and model");
    return train::open_run(saved, options);
  }();
  report_ignored(run.experiment->config.ignored(run.experiment->plan.effective), quiet);
  return run;
}

void check_loss(double loss, const std::string& checkpoint, const std::string& split) {
  check<DivergedError>(std::isfinite(loss), checkpoint, ": the loss on the ", split, " split is ",
                       train::unsigned_nan(loss), ", although all weights are finite");
}

void report_ignored(const std::vector<std::string>& ignored, bool quiet) {
  if (!ignored.empty() && !quiet)
    print_stderr("longhand: ignored, because they do not apply here: {}\n",
                 fmt::join(ignored, ", "));
}

}  // namespace longhand::cli
