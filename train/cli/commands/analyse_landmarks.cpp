// longhand analyse landmarks.
#include "longhand/train/cli/commands/analyse.h"

namespace longhand::cli {
namespace {

struct Arguments : ResultsArguments {
  attention::analysis::LandmarkOptions options;
};

int run(const Arguments& a) {
  attention::analysis::LandmarkOptions options = a.options;
  options.seed = seed_or_default(a);
  const train::Results results = [&] {
    const Waiting waiting(a.progress(), "analyse landmarks");
    return analyse::landmarks(options);
  }();
  return finish(a, results);
}

}  // namespace

void add_analyse_landmarks(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command("landmarks",
                            "Error against random landmarks, on the linear kernel and on softmax",
                            [a] { return run(*a); });
  c.add("--tokens", a->options.tokens, "N", "Tokens [50]").positive();
  c.add("--head-dim", a->options.dim, "D", "Head dimension [10]").positive();
  c.add("--landmarks", a->options.landmarks, "M,...", "Numbers of landmarks [1 to 2 D]")
      .separated_by_commas()
      .positive();
  c.add("--draws", a->options.draws, "N", "Draws of queries, keys and landmarks [200]").positive();
  c.add("--norm", a->options.norm, "X", "Root mean square norm of queries and keys [sqrt(D)]")
      .not_negative();
  add_common(c, *a);
}

}  // namespace longhand::cli
