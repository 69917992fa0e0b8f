// MPI as a Communicator: the component longhand::mpi, Longhand's only use of MPI.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// MPI from its start to its end; only once per process. A dedicated thread makes all MPI calls, so
/// MPI needs only MPI_THREAD_FUNNELED and makes progress while other threads compute.
class Mpi {
 public:
  /// Starts MPI. Throws Error if it was already started in this process, or cannot start.
  Mpi();
  /// Ends MPI. All ranks must do this, or abort().
  ~Mpi();
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  /// All ranks that were started together.
  Communicator& world();

  /// A rank that has not joined an operation for which this rank waits.
  struct Late {
    int rank;  // in world()
    std::string host;
    double seconds;  // waited by this rank
  };
  /// From now on, if an operation lasts longer than `seconds`, and again after twice, four times, …
  /// that time, the MPI thread calls `report` with the ranks that have not joined, on the lowest
  /// rank that has. All ranks must call this with the same time, before their first operation.
  void report_late(double seconds, std::function<void(const std::vector<Late>&)> report);

  /// Ends all ranks at once with this exit code, even while they wait for each other.
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
