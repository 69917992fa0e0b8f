// Run by mpirun: checks MPI as a communicator, on every rank.
#include <exception>
#include <iostream>

#include "longhand/train/ranks/mpi.h"
#include "tests/support/communicator_check.h"

int main() {
  longhand::train::Mpi mpi;
  try {
    longhand::test::check_communicator(mpi.world());
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    mpi.abort(1);
  }
  return 0;
}
