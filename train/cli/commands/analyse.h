// Shared by the subcommands of analyse: their flags.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "longhand/train/analyse/analyse.h"
#include "longhand/train/cli/output/results.h"

namespace longhand::cli {

namespace analyse = train::analyse;

/// Adds the flags that every analysis has.
void add_common(Command& command, ResultsArguments& arguments);

/// Flags of analyses of queries, keys and values of a run.
struct RunArguments : ResultsArguments {
  std::string run;  // empty: random inputs
  std::string checkpoint = "best", split = "test";
};
/// Adds them and those of the inputs; `lengths` and `norms` describe the defaults.
void add_source(Command& command, RunArguments& arguments, analyse::SourceOptions& options,
                const std::string& lengths, const std::string& norms);

/// The run, if one is given.
std::optional<analyse::LoadedRun> load_run(const RunArguments& arguments);

/// The results of analyse(on_progress), while progress is shown.
template <class F>
auto with_progress(const ResultsArguments& arguments, F analyse) {
  Progress progress(arguments.progress(), chosen_command(), 2);
  return analyse([&](int64_t done, int64_t all, const std::string& next) {
    progress.update(done, all, next);
  });
}

void add_analyse_error(Command& group);
void add_analyse_spectrum(Command& group);
void add_analyse_landmarks(Command& group);
void add_analyse_kernel(Command& group);
void add_analyse_efficiency(Command& group);
void add_analyse_attention(Command& group);
void add_analyse_heuristics(Command& group);

}  // namespace longhand::cli
