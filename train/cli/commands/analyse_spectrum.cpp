// longhand analyse spectrum.
#include "longhand/train/cli/commands/analyse.h"

namespace longhand::cli {
namespace {

struct Arguments : RunArguments {
  analyse::SourceOptions options;
};

int run(const Arguments& a) {
  analyse::SourceOptions options = a.options;
  options.seed = seed_or_default(a);
  const std::optional<analyse::LoadedRun> run = load_run(a);
  return finish(a,
                with_progress(a,
                              [&](const auto& on_progress) {
                                return analyse::spectrum(options, run ? &*run : nullptr,
                                                         on_progress);
                              }),
                {.hidden = {"spectrum"}});
}

}  // namespace

void add_analyse_spectrum(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command(
      "spectrum",
      "Singular values of attention's weights by layer and head; effective rank by length",
      [a] { return run(*a); });
  add_source(c, *a, a->options, "32 to 512, as far as the sequences are that long", "1,4");
  add_common(c, *a);
}

}  // namespace longhand::cli
