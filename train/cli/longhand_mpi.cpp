// The program longhand-mpi: longhand as one of several processes started by mpirun or srun.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/train/cli/main.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/ranks/mpi.h"

namespace longhand::cli {
namespace {

void warn_about(const std::vector<train::Mpi::Late>& late) {
  for (const auto& [rank, host, seconds] : late)
    print_stderr(
        "longhand: warning: {} has not joined the other ranks, which have waited for {:.3g} s: "
        "it is stopped, unreachable or slower than they are\n",
        train::rank_name(rank, host), seconds);
}

Communicator& start(std::optional<train::Mpi>& mpi) {
  mpi.emplace();
  const char* const text = std::getenv("LONGHAND_LATE_SECONDS");
  const double seconds = text ? std::strtod(text, nullptr) : 10;
  check<ConfigError>(seconds >= 0.01, "LONGHAND_LATE_SECONDS: expected at least 0.01, got ", text);
  mpi->report_late(seconds, warn_about);
  return mpi->world();
}

}  // namespace
}  // namespace longhand::cli

int main(int argc, char** argv) {
  using namespace longhand::cli;
  catch_signals();
  int code = 0;
  {
    std::optional<longhand::train::Mpi> mpi;
    const Launcher launcher{[&]() -> longhand::Communicator& { return start(mpi); },
                            longhand::train::Mpi::version};
    set_launcher(&launcher);
    if (started_as().rank > 0) {  // the first rank prints
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      close(nowhere);
    }
    code = longhand::cli::main(argc, argv);
    // The others may be waiting for this rank. A stopped run has ended on all of them.
    if (code != 0 && code != 75 && mpi && mpi->world().size() > 1) mpi->abort(code);
  }
  leave(code);
}
