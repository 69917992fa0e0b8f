// Shared by the subcommands of analyse: where queries, keys and values come from, and how results are
// printed and written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/train/cli/results.h"
#include "longhand/train/config/experiment.h"

namespace longhand::cli {

using train::add_estimate;
using train::add_nothing;

/// Adds the flags that every analysis has.
void add_common(Command& command, ResultsArguments& arguments);

/// Flags of analyses of queries, keys and values: of a run, or random.
struct SourceArguments : ResultsArguments {
  std::string run;  // empty: random inputs
  std::string checkpoint = "best", split = "test";
  std::vector<int64_t> length;  // empty: a default of the analysis
  std::vector<double> norm;     // of random inputs
  int64_t count = 4;            // random inputs or sequences
  int64_t dim = 32;             // of random inputs
  double correlation = 0;       // of neighbouring tokens of random inputs
  bool causal = false;          // of random inputs
};
/// Adds them; `lengths` and `norms` describe the defaults.
void add_source(Command& command, SourceArguments& arguments, const std::string& lengths,
                const std::string& norms);

/// A trained model and the data to run it on.
struct LoadedRun {
  std::unique_ptr<train::Experiment> experiment;
  std::string file;  // its checkpoint
  const data::Dataset* dataset = nullptr;

  attention::Transformer& model() const { return experiment->model; }
};
LoadedRun load_run(const SourceArguments& arguments);

/// What each layer receives for the first `count` sequences that have `length` tokens, cut to that
/// length. Throws ConfigError if there are none.
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
/// One for each length and norm, or for each length, layer and head of the run.
std::vector<Source> sources(const SourceArguments& arguments, const LoadedRun* run,
                            const std::vector<int64_t>& default_lengths,
                            const std::vector<double>& default_norms);
/// The first columns of a table by source: the length, and the norm or the layer and head.
std::vector<train::Column> source_columns();
std::vector<train::Cell> source_cells(const Source& source);
/// Names of the columns that distinguish curves of different sources.
std::vector<std::string> source_series(bool of_run);

/// A number for a sentence, with three digits.
std::string short_text(double value);

void add_analyse_error(Command& group);
void add_analyse_spectrum(Command& group);
void add_analyse_landmarks(Command& group);
void add_analyse_kernel(Command& group);
void add_analyse_efficiency(Command& group);
void add_analyse_attention(Command& group);
void add_analyse_heuristics(Command& group);

}  // namespace longhand::cli
