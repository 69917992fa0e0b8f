// MPI as a Communicator: the component longhand::mpi, the only part of Longhand that uses MPI.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// MPI from its start to its end; one at most in a process, once. A thread of its own makes all calls of
/// MPI, which therefore needs no more than MPI_THREAD_FUNNELED, and progresses while others compute.
class Mpi {
 public:
  /// Starts MPI. Throws Error if it has been started before in this process, or cannot be.
  Mpi();
  /// Ends MPI. All ranks must do so, or abort().
  ~Mpi();
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  /// All ranks that were started together.
  Communicator& world();

  /// A rank that does not take part in an operation while this one waits for it.
  struct Late {
    int rank;  // in world()
    std::string host;
    double seconds;  // that this rank has waited
  };
  /// From now on, if an operation lasts longer than `seconds`, and again after twice, four times, … as
  /// long, the thread of MPI calls `report` with the ranks that have not joined it, on the lowest rank
  /// that has. All ranks must call this with the same time, before their first operation.
  void report_late(double seconds, std::function<void(const std::vector<Late>&)> report);

  /// Ends all ranks at once with this exit code, also while they wait for each other.
  [[noreturn]] void abort(int code);

  /// "Open MPI 4.1.4"
  static std::string version();

 private:
  class Engine;
  class Group;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace longhand::train
