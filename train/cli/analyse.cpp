// longhand analyse: what a variant loses against exact attention, and what it saves.
#include "longhand/train/cli/analyse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

using attention::analysis::HeadInputs;
using attention::analysis::LayerInputs;
using train::Cell;
using train::Column;

double root_mean_square_norm(const Tensor& q) {
  double sum = 0;
  for (const double x : q.to_vector<double>()) sum += x * x;
  return std::sqrt(sum / static_cast<double>(q.size(1)));
}

}  // namespace

void add_common(Command& command, ResultsArguments& arguments) {
  add_out(command, arguments);
  command.seed(arguments);
  command.threads();
  command.quiet(arguments);
  command.json(arguments.json);
}

void add_source(Command& command, SourceArguments& a, const std::string& lengths,
                const std::string& norms) {
  command.add("--run", a.run, "DIR",
              "Analyse the queries, keys and values of this run or checkpoint [random ones]");
  command.add("--checkpoint", a.checkpoint, "NAME", "best, last or another one of the run [best]");
  command.trust_paths(a);
  command.add("--split", a.split, "SPLIT", "Data of the run: train, validation or test [test]");
  command
      .add("--length", a.length, "N,...",
           "Tokens; sequences of a run are cut to them [" + lengths + "]")
      .separated_by_commas()
      .positive();
  command.add("--count", a.count, "N", "Sequences of the run, or random inputs [4]").positive();
  command
      .add("--norm", a.norm, "X,...",
           "Root mean square norms of random queries and keys, whose entries are N(0, X^2 / D) [" +
               norms + "]")
      .separated_by_commas()
      .not_negative();
  command.add("--head-dim", a.dim, "D", "Head dimension of random inputs [32]").positive();
  command.add("--correlation", a.correlation, "C",
              "Correlation of neighbouring tokens of random inputs, 0 <= C < 1 [0]");
  command.flag("--causal", a.causal, "Causal attention on random inputs");
}

LoadedRun load_run(const SourceArguments& arguments) {
  LoadedRun out;
  const Waiting waiting(arguments.progress(), "preparing data and model");
  train::SavedModel saved = train::load_model(arguments.run, arguments.checkpoint);
  if (!arguments.trust_paths) saved.check_paths();
  out.file = saved.file;
  out.experiment =
      std::make_unique<train::Experiment>(saved.config, data::Splits::only(arguments.split));
  try {
    train::load_weights(out.experiment->model, saved.checkpoint);
  } catch (const DataError& error) {
    throw DataError(saved.file + ": " + error.what());
  }
  out.dataset = &out.experiment->task.split(arguments.split);
  return out;
}

std::vector<LayerInputs> probe_run(const LoadedRun& run, int64_t count, int64_t length) {
  std::vector<int64_t> chosen;
  int64_t longest = 0;
  for (int64_t i = 0; i < run.dataset->size() && static_cast<int64_t>(chosen.size()) < count; ++i) {
    longest = std::max(longest, run.dataset->length(i));
    if (run.dataset->length(i) >= length) chosen.push_back(i);
  }
  check<ConfigError>(!chosen.empty(), "--length ", length,
                     ": no sequence is that long; the longest has ", longest, " tokens");
  const data::Batch batch = run.dataset->collate(chosen);
  return attention::analysis::probe(run.model(), batch.tokens.slice(1, 0, length).contiguous(), {});
}

std::vector<Source> sources(const SourceArguments& arguments, const LoadedRun* run,
                            const std::vector<int64_t>& default_lengths,
                            const std::vector<double>& default_norms) {
  std::vector<Source> out;
  if (!run) {
    for (const int64_t length : arguments.length.empty() ? default_lengths : arguments.length)
      for (const double norm : arguments.norm.empty() ? default_norms : arguments.norm) {
        Source source{length, norm, -1, -1, arguments.causal, {}};
        for (int64_t i = 0; i < arguments.count; ++i)
          source.heads.push_back(
              attention::analysis::random_head({length, arguments.dim, norm, arguments.correlation},
                                               Generator(seed_or_default(arguments))
                                                   .fork("inputs")
                                                   .fork(static_cast<uint64_t>(length))
                                                   .fork(static_cast<uint64_t>(i))));
        out.push_back(std::move(source));
      }
    return out;
  }
  check<ConfigError>(
      arguments.norm.empty() && arguments.correlation == 0 && !arguments.causal,
      "--norm, --correlation and --causal describe random inputs; with --run, queries "
      "and keys are those of the model");
  std::vector<int64_t> lengths = arguments.length;
  if (lengths.empty()) {
    int64_t shortest = run->model().config().max_length;
    for (int64_t i = 0; i < std::min(run->dataset->size(), arguments.count); ++i)
      shortest = std::min(shortest, run->dataset->length(i));
    for (const int64_t length : default_lengths)
      if (lengths.empty() || length <= shortest) lengths.push_back(std::min(length, shortest));
  }
  for (const int64_t length : lengths) {
    const std::vector<HeadInputs> heads =
        attention::analysis::heads_of(probe_run(*run, arguments.count, length));
    for (const HeadInputs& head : heads) {
      if (out.empty() || out.back().length != head.length() || out.back().layer != head.layer ||
          out.back().head != head.head)
        out.push_back({head.length(), 0, head.layer, head.head, run->model().config().causal, {}});
      out.back().heads.push_back(head);
    }
  }
  for (Source& source : out)
    for (const HeadInputs& head : source.heads)
      source.norm += root_mean_square_norm(head.q) / static_cast<double>(source.heads.size());
  return out;
}

std::vector<Column> source_columns() {
  return {{"length", ""}, {"layer", ""}, {"head", ""}, {"norm", "|q|", 3}};
}

std::vector<Cell> source_cells(const Source& source) {
  if (source.layer < 0) return {source.length, {}, {}, source.norm};
  return {source.length, source.layer, source.head, source.norm};
}

std::vector<std::string> source_series(bool of_run) {
  return of_run ? std::vector<std::string>{"length", "layer", "head"}
                : std::vector<std::string>{"length", "norm"};
}

std::string short_text(double value) { return train::to_text(value, 3); }

void add_analyse(Command& program) {
  Command group = program.group(
      "analyse", "Measure errors, spectra, costs and maps of attention, and heuristics of tasks");
  add_analyse_error(group);
  add_analyse_spectrum(group);
  add_analyse_landmarks(group);
  add_analyse_kernel(group);
  add_analyse_efficiency(group);
  add_analyse_attention(group);
  add_analyse_heuristics(group);
}

}  // namespace longhand::cli
