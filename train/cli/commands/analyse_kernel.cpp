// longhand analyse kernel.
#include "longhand/train/cli/commands/analyse.h"

namespace longhand::cli {
namespace {

struct Arguments : RunArguments {
  analyse::KernelOptions options;
};

int run(const Arguments& a) {
  analyse::check_kernel(a.options);
  analyse::KernelOptions options = a.options;
  options.seed = seed_or_default(a);
  const std::optional<analyse::LoadedRun> run = load_run(a);
  return finish(a, with_progress(a, [&](const auto& on_progress) {
                  return analyse::kernel(options, run ? &*run : nullptr, on_progress);
                }));
}

}  // namespace

void add_analyse_kernel(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command(
      "kernel", "Softmax and Gaussian kernels by random features and by landmarks, next to theory",
      [a] { return run(*a); });
  c.add("--kernel", a->options.kernel, "NAME", "softmax, gaussian or both [both]");
  c.add("--sizes", a->options.kernels.sizes, "M,...", "Rows of W, and landmarks [8,16,32,64]")
      .separated_by_commas()
      .positive();
  c.add("--draws", a->options.kernels.draws, "N", "Repetitions of each measurement [16]")
      .positive();
  c.add("--ensemble", a->options.kernels.ensemble, "N", "Matrices that are averaged [4]")
      .positive();
  c.flag("--keys", a->options.keys, "Take keys for points, not queries");
  add_source(c, *a, a->options, "128", "1,2");
  add_common(c, *a);
}

}  // namespace longhand::cli
