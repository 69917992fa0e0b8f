// The program longhand-mpi: longhand as one of several processes that mpirun or srun started.
#include "longhand/train/cli/main.h"
#include "longhand/train/distributed/mpi.h"

int main(int argc, char** argv) {
  longhand::train::Mpi mpi;
  const int code = longhand::cli::main(argc, argv);
  return code;
}
