#include "longhand/train/cli/ranks.h"

#include <fmt/format.h>

#include <cstdlib>

#include "longhand/core/communicator.h"

namespace longhand::cli {
namespace {

const Launcher* of_program = nullptr;
Communicator* connected = nullptr;

int environment(std::initializer_list<const char*> names, int default_value) {
  for (const char* name : names)
    if (const char* const value = std::getenv(name)) return std::atoi(value);
  return default_value;
}

}  // namespace

const Launcher* launcher() { return of_program; }
void set_launcher(const Launcher* launcher) { of_program = launcher; }

Communicator& ranks() { return connected ? *connected : alone(); }
void connect_ranks() {
  if (of_program) connected = &of_program->connect();
}

std::string program_words() {
  if (!of_program) return "longhand";
  const int size = ranks().size();
  if (size == 1) return "longhand-mpi";
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  return fmt::format("{} {} longhand-mpi", by_mpirun ? "mpirun -np" : "srun --mpi=pmix -n", size);
}

int threads_given() { return environment({"SLURM_CPUS_PER_TASK"}, 0); }

// From Open MPI's mpirun, and from srun --mpi=pmix.
std::vector<std::string> rank_variables() {
  return {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"};
}

StartedAs started_as() {
  const bool by_srun = std::getenv("PMIX_RANK") != nullptr;
  return {environment({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, 0),
          environment({"OMPI_COMM_WORLD_SIZE"}, by_srun ? environment({"SLURM_NTASKS"}, 1) : 1)};
}

}  // namespace longhand::cli
