// Shared by the subcommands of analyse: where queries, keys and values come from, and how results are
// printed and written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/core/statistics.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/experiment.h"
#include "longhand/train/report/table.h"

namespace longhand::cli {

/// Flags that every analysis has.
struct AnalyseArguments : Common {
  std::string out;  // file for the results; empty: none

  /// --seed, or LONGHAND_SEED, or 0.
  uint64_t seed_or_default() const;
  Progress::Mode progress() const { return Progress::mode_for_stderr(quiet || json); }
};
void add_common(Command& command, AnalyseArguments& arguments);

/// Flags of analyses of queries, keys and values: of a run, or random.
struct SourceArguments : AnalyseArguments {
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

/// Columns for an estimate, NAME, NAME_low and NAME_high, and their cells. An interval that is not
/// known is not available.
void add_estimate(std::vector<train::Column>& columns, const std::string& name,
                  const std::string& heading);
void add_estimate(std::vector<train::Cell>& row, const Estimate& estimate);
/// Three cells that are not available.
void add_nothing(std::vector<train::Cell>& row);

/// Results without tables yet; finish() adds where they are from.
train::Results new_results(const std::string& analysis, const std::string& title,
                           const std::string& summary);
/// Prints results (as text, or JSON with --json), and writes them to --out. Tables in `hidden` are
/// only written. Returns the exit code.
int finish(const AnalyseArguments& arguments, train::Results results,
           const std::vector<std::string>& hidden = {});

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
