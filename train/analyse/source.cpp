#include "longhand/train/analyse/source.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "longhand/attention/analysis/measures.h"

namespace longhand::train::analyse {

namespace analysis = attention::analysis;
using analysis::HeadInputs;

std::vector<analysis::LayerInputs> probe_run(const LoadedRun& run, int64_t count, int64_t length) {
  std::vector<int64_t> chosen;
  int64_t longest = 0;
  for (int64_t i = 0; i < run.dataset->size() && static_cast<int64_t>(chosen.size()) < count; ++i) {
    longest = std::max(longest, run.dataset->length(i));
    if (run.dataset->length(i) >= length) chosen.push_back(i);
  }
  check<ConfigError>(!chosen.empty(), "--length ", length,
                     ": no sequence is that long; the longest has ", longest, " tokens");
  const data::Batch batch = run.dataset->collate(chosen);
  return analysis::probe(run.model(), batch.tokens.slice(1, 0, length).contiguous(), {});
}

std::vector<Source> sources(const SourceOptions& options, const LoadedRun* run,
                            const std::vector<int64_t>& default_lengths,
                            const std::vector<double>& default_norms) {
  std::vector<Source> out;
  if (!run) {
    for (const int64_t length : options.length.empty() ? default_lengths : options.length)
      for (const double norm : options.norm.empty() ? default_norms : options.norm) {
        Source source{length, norm, -1, -1, options.causal, {}};
        for (int64_t i = 0; i < options.count; ++i)
          source.heads.push_back(
              analysis::random_head({length, options.dim, norm, options.correlation},
                                    Generator(options.seed)
                                        .fork("inputs")
                                        .fork(static_cast<uint64_t>(length))
                                        .fork(static_cast<uint64_t>(i))));
        out.push_back(std::move(source));
      }
    return out;
  }
  check<ConfigError>(
      options.norm.empty() && options.correlation == 0 && !options.causal,
      "--norm, --correlation and --causal describe random inputs; with --run, queries "
      "and keys are those of the model");
  std::vector<int64_t> lengths = options.length;
  if (lengths.empty()) {
    int64_t shortest = run->model().config().max_length;
    for (int64_t i = 0; i < std::min(run->dataset->size(), options.count); ++i)
      shortest = std::min(shortest, run->dataset->length(i));
    for (const int64_t length : default_lengths)
      if (lengths.empty() || length <= shortest) lengths.push_back(std::min(length, shortest));
  }
  for (const int64_t length : lengths) {
    const std::vector<HeadInputs> heads =
        analysis::heads_of(probe_run(*run, options.count, length));
    for (const HeadInputs& head : heads) {
      if (out.empty() || out.back().length != head.length() || out.back().layer != head.layer ||
          out.back().head != head.head)
        out.push_back({head.length(), 0, head.layer, head.head, run->model().config().causal, {}});
      out.back().heads.push_back(head);
    }
  }
  for (Source& source : out)
    for (const HeadInputs& head : source.heads)
      source.norm += std::sqrt(analysis::square_norm(head.q) / static_cast<double>(head.length())) /
                     static_cast<double>(source.heads.size());
  return out;
}

RowField source_fields(const Source& source) {
  const auto of_run = [&](int64_t place) { return source.layer < 0 ? Cell() : Cell(place); };
  return {{{"length", ""}, {"layer", ""}, {"head", ""}, {"norm", "|q|", 3}},
          {source.length, of_run(source.layer), of_run(source.head), source.norm}};
}

std::vector<std::string> source_series(bool of_run) {
  return of_run ? std::vector<std::string>{"length", "layer", "head"}
                : std::vector<std::string>{"length", "norm"};
}

analysis::Candidate candidate_of(const std::string& text) {
  std::istringstream parts(text);
  analysis::Candidate out;
  std::getline(parts, out.variant, ':');
  attention::spec(out.variant);  // throws
  for (std::string option; std::getline(parts, option, ':');) {
    Config config;
    config.assign("attention." + option, "--attention");
    for (const auto& [name, value] : config.given())
      out.options.emplace_back(name.substr(name.find('.') + 1), value);
  }
  return out;
}

std::string size_option(const std::string& variant) {
  static const std::map<std::string, std::string> options = {
      {"linformer", "k"},  {"performer", "features"},  {"nystrom", "landmarks"},
      {"rff", "features"}, {"skyformer", "landmarks"}, {"window", "window"},
      {"lowrank", "rank"}};
  const auto found = options.find(variant);
  return found == options.end() ? "" : found->second;
}

Estimate estimate_of(const Line& line, size_t count) {
  return {line.slope, line.low, line.high, static_cast<int64_t>(count)};
}

}  // namespace longhand::train::analyse
