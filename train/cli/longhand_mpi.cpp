// The program longhand-mpi: longhand as one of several processes that mpirun or srun has started.
#include <fcntl.h>
#include <unistd.h>

#include <optional>

#include "longhand/train/cli/main.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/distributed/mpi.h"

namespace longhand::cli {
namespace {

class MpiLauncher final : public Launcher {
 public:
  Communicator& connect() override {
    if (!mpi_) mpi_.emplace();
    return mpi_->world();
  }
  void abort(int code) override {
    if (mpi_ && mpi_->world().size() > 1) mpi_->abort(code);
  }
  int rank() const override { return started_as().rank; }
  std::string version() const override { return train::Mpi::version(); }

 private:
  std::optional<train::Mpi> mpi_;
};

}  // namespace
}  // namespace longhand::cli

int main(int argc, char** argv) {
  using namespace longhand::cli;
  catch_signals();
  int code = 0;
  {
    MpiLauncher launcher;
    set_launcher(&launcher);
    if (launcher.rank() > 0) {  // the first rank prints
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      close(nowhere);
    }
    code = longhand::cli::main(argc, argv);
    // The others may be waiting for this rank. A run that was stopped has ended on all of them.
    if (code != 0 && code != 75) launcher.abort(code);
  }
  leave(code);
}
