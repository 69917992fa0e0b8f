// Ranks: the program as one of several processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::cli {

/// How processes that were started together find each other: MPI, in longhand-mpi.
struct Launcher {
  /// Starts MPI and returns the group of all of them. Only commands that run on ranks do that, once: others
  /// may start processes of their own.
  std::function<Communicator&()> connect;
  /// "Open MPI 4.1.4"
  std::string (*version)();
};

/// The launcher of this program; null in longhand itself.
const Launcher* launcher();
void set_launcher(const Launcher* launcher);

/// All ranks of a command that runs on ranks; otherwise this process alone.
Communicator& ranks();
/// Calls Launcher::connect() for ranks().
void connect_ranks();

/// "longhand", or "mpirun -np 4 longhand-mpi": what to type to run a command like this one.
std::string program_words();

/// The number of threads that Slurm gives a task (srun -c), or 0. Without it a task may run on all cores of
/// its job, also those of other tasks.
int threads_given();

/// The rank that mpirun or srun gave this process, and how many there are; {0, 1} if it was started in
/// another way.
struct StartedAs {
  int rank, size;
};
StartedAs started_as();
/// The environment variables that say so.
std::vector<std::string> rank_variables();

}  // namespace longhand::cli
