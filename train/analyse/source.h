// Sources of the queries, keys and values to analyse: random numbers, or a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/analysis/probe.h"
#include "longhand/core/statistics.h"
#include "longhand/train/results/table.h"
#include "longhand/train/transfer/loaded_run.h"

namespace longhand::train::analyse {

struct SourceOptions {
  std::vector<int64_t> length{};  // empty: a default of the analysis
  int64_t count = 4;              // random inputs, or sequences of the run
  // Of random inputs:
  std::vector<double> norm{};
  int64_t dim = 32;
  double correlation = 0;  // of neighbouring tokens
  bool causal = false;
  uint64_t seed = 0;
};

/// The inputs of each layer for the first `count` sequences of at least `length` tokens, cut to
/// that length. Throws ConfigError if there are none.
std::vector<attention::analysis::LayerInputs> probe_run(const LoadedRun& run, int64_t count,
                                                        int64_t length);

/// Inputs to analyse: random ones, or one head of a model.
struct Source {
  int64_t length = 0;
  double norm = 0;  // of queries: given if random, otherwise measured
  int64_t layer = -1, head = -1;
  bool causal = false;
  std::vector<attention::analysis::HeadInputs> heads;  // one for each sequence
};
/// Returns one source per length and norm, or per length, layer and head of the run.
std::vector<Source> sources(const SourceOptions& options, const LoadedRun* run,
                            const std::vector<int64_t>& default_lengths,
                            const std::vector<double>& default_norms);
/// The first columns of a table by source: the length, and the norm or the layer and head.
RowField source_fields(const Source& source);
/// Names of the columns that distinguish curves of different sources.
std::vector<std::string> source_series(bool of_run);

/// A variant with options: "performer:features=64:kernel=hyperbolic". Throws ConfigError.
attention::analysis::Candidate candidate_of(const std::string& text);

/// The option that sets the size of a variant; empty if it has none.
std::string size_option(const std::string& variant);

/// The slope of a line through this many points.
Estimate estimate_of(const Line& line, size_t count);

}  // namespace longhand::train::analyse
