// longhand analyse attention.
#include "longhand/train/cli/commands/analyse.h"
#include "longhand/train/cli/output/output.h"

namespace longhand::cli {
namespace {

struct Arguments : RunArguments {
  analyse::AttentionOptions options;
  std::vector<int64_t> length;  // the first one
};

int run(const Arguments& a) {
  analyse::AttentionOptions options = a.options;
  options.split = a.split;
  if (!a.length.empty()) options.length = a.length[0];
  const std::optional<analyse::LoadedRun> run = load_run(a);
  const auto found = with_progress(
      a, [&](const auto& on_progress) { return analyse::attention(options, *run, on_progress); });
  if (!a.json && !a.quiet) print_stdout("{}", found.drawn);
  return finish(a, found.results, {.hidden = {"maps"}});
}

}  // namespace

void add_analyse_attention(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command("attention", "Attention maps of a run on one input, by layer and head",
                            [a] { return run(*a); });
  c.add("run", a->run, "DIR", "Run directory or checkpoint file").required();
  c.add("--checkpoint", a->checkpoint, "NAME", "best, last or another one of the run [best]");
  c.add("--split", a->split, "SPLIT", "train, validation or test [test]");
  c.add("--index", a->options.index, "I", "The sequence, from 0 [0]").not_negative();
  c.add("--length", a->length, "N", "Its first N tokens [all]").positive();
  c.add("--size", a->options.size, "N", "Average longer maps to N queries and keys [64]")
      .positive();
  add_common(c, *a);
}

}  // namespace longhand::cli
