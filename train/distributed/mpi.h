// MPI as a Communicator: the component longhand::mpi, the only part of Longhand that uses MPI.
#pragma once

#include <memory>
#include <string>

#include "longhand/core/communicator.h"

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
