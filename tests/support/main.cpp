#define CATCH_CONFIG_RUNNER  // Catch2 2 is compiled here, Catch2 3 is a library
#include "longhand/core/gemm.h"
#include "tests/support/catch.h"

int main(int argc, char** argv) {
  longhand::use_better_blas_core();  // as the program
  return Catch::Session().run(argc, argv);
}
