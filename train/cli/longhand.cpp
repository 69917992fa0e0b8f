// The program longhand.
#include "longhand/train/cli/main.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A signal without a handler ends the process. This runs before the constructors of the shared
// libraries, of which that of OpenBLAS takes most of the time until main().
[[gnu::section(".preinit_array"),
  gnu::used]] void (*before_libraries)() = longhand::cli::catch_signals;
#endif

int main(int argc, char** argv) { longhand::cli::leave(longhand::cli::main(argc, argv)); }
