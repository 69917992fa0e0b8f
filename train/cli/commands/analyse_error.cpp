// longhand analyse error.
#include "longhand/train/cli/commands/analyse.h"

namespace longhand::cli {
namespace {

struct Arguments : RunArguments {
  analyse::ErrorOptions options;
};

int run(const Arguments& a) {
  analyse::ErrorOptions options = a.options;
  options.seed = seed_or_default(a);
  const std::optional<analyse::LoadedRun> run = load_run(a);
  return finish(a, with_progress(a, [&](const auto& on_progress) {
                  return analyse::error(options, run ? &*run : nullptr, on_progress);
                }));
}

}  // namespace

void add_analyse_error(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command(
      "error", "Errors of variants against exact attention, on random inputs or on those of a run",
      [a] { return run(*a); });
  c.add("--attention", a->options.attention, "NAME[:OPTION=VALUE...]",
        "A variant with options, such as performer:features=64; may be repeated [the usual ones, "
        "with each of --sizes]")
      .repeated();
  c.add("--sizes", a->options.sizes, "M,...",
        "Features, landmarks, slots and ranks of the usual variants [16,64,256]")
      .separated_by_commas()
      .positive();
  c.add("--draws", a->options.draws, "N", "Draws of each variant's random numbers [8]").positive();
  c.add("--landmarks", a->options.landmarks, "M",
        "Landmarks of the pseudo-inverse, up to half the tokens [64]")
      .positive();
  c.add("--steps", a->options.steps, "N", "Steps of the pseudo-inverse [20]").positive();
  add_source(c, *a, a->options, "256", "1,4");
  add_common(c, *a);
}

}  // namespace longhand::cli
