// Ranks: the program as one of several processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::cli {

/// How processes that were started together find each other: MPI in longhand-mpi.
struct Launcher {
  /// Starts MPI and returns the group of all processes. Only commands that run on ranks call it,
  /// once: other commands may start child processes.
  std::function<Communicator&()> connect;
  /// "Open MPI 4.1.4"
  std::string (*version)();
};

/// The launcher of this program; null in longhand itself.
const Launcher* launcher();
void set_launcher(const Launcher* launcher);

/// Returns all ranks for a command that runs on ranks; otherwise only this process.
Communicator& ranks();
/// Calls Launcher::connect() for ranks().
void connect_ranks();

/// Returns how to run such a command: "longhand", or "mpirun -np 4 longhand-mpi".
std::string program_words();

/// Returns the number of threads that Slurm gives a task (srun -c), or 0. Without it, a task may
/// run on all cores of its job, including those of other tasks.
int threads_given();

/// The rank that mpirun or srun gave this process, and the number of ranks; {0, 1} if it was
/// started otherwise.
struct StartedAs {
  int rank, size;
};
StartedAs started_as();
/// Returns the environment variables that give the rank.
std::vector<std::string> rank_variables();

}  // namespace longhand::cli
