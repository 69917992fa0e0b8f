// longhand analyse: what a variant loses against exact attention, and what it saves.
#include "longhand/train/cli/commands/analyse.h"

namespace longhand::cli {

void add_common(Command& command, ResultsArguments& arguments) {
  add_out(command, arguments);
  command.seed(arguments);
  command.threads();
  command.quiet(arguments);
  command.json(arguments.json);
}

void add_source(Command& command, RunArguments& a, analyse::SourceOptions& options,
                const std::string& lengths, const std::string& norms) {
  command.add("--run", a.run, "DIR",
              "Analyse the queries, keys and values of this run or checkpoint [random ones]");
  command.add("--checkpoint", a.checkpoint, "NAME", "best, last or another one of the run [best]");
  command.trust_paths(a);
  command.add("--split", a.split, "SPLIT", "Data of the run: train, validation or test [test]");
  command
      .add("--length", options.length, "N,...",
           "Tokens; sequences of a run are cut to them [" + lengths + "]")
      .separated_by_commas()
      .positive();
  command.add("--count", options.count, "N", "Sequences of the run, or random inputs [4]")
      .positive();
  command
      .add("--norm", options.norm, "X,...",
           "Root mean square norms of random queries and keys, whose entries are N(0, X^2 / D) [" +
               norms + "]")
      .separated_by_commas()
      .not_negative();
  command.add("--head-dim", options.dim, "D", "Head dimension of random inputs [32]").positive();
  command.add("--correlation", options.correlation, "C",
              "Correlation of neighbouring tokens of random inputs, 0 <= C < 1 [0]");
  command.flag("--causal", options.causal, "Causal attention on random inputs");
}

std::optional<analyse::LoadedRun> load_run(const RunArguments& arguments) {
  if (arguments.run.empty()) return std::nullopt;
  const Waiting waiting(arguments.progress(), "preparing data and model");
  return analyse::load_run(arguments.run, arguments.checkpoint, arguments.split,
                           arguments.trust_paths);
}

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
