// The program longhand.
#include "longhand/train/cli/main.h"

#include <features.h>  // __GLIBC__

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A signal without a handler ends the process. This runs before the constructors of the shared
// libraries; OpenBLAS's takes most of the time until main().
static void before_libraries() {
  longhand::cli::refuse_small_address_space(0);
  longhand::cli::catch_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*before_libraries_)() = before_libraries;
#endif

int main(int argc, char** argv) { longhand::cli::leave(longhand::cli::main(argc, argv)); }
