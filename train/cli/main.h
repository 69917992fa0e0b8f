// The program as a function: the library longhand::cli.
#pragma once

#include <cstdint>

namespace longhand::cli {

/// The program `longhand`, for your own main() that registers variants and tasks first:
///
///     int main(int argc, char** argv) {
///       longhand::attention::add("mine", my_spec());
///       return longhand::cli::main(argc, argv);
///     }
///
/// Returns the exit code; throws nothing. Call it once, before other threads run: it handles
/// signals and sets LONGHAND_PLUGINS for its child processes. These run this program again with
/// another command's arguments, so main() must do the same in all of them.
int main(int argc, char** argv);

/// Starts catching signals, as main() does first. Call it earlier so that no signal ends the
/// process before that.
void catch_signals();

/// Ends the process with a message if its address space limit is too small for libraries with this
/// many further OpenBLAS threads. They would hang instead of failing: a thread that cannot allocate
/// its buffer retries forever. Call it before the libraries' constructors, if possible.
void refuse_small_address_space(uint64_t threads);

/// Ends the process with this exit code once its output is flushed. Unlike a return from main(), it
/// skips destructors of libraries: OpenBLAS's may wait forever when memory is short.
[[noreturn]] void leave(int code);

}  // namespace longhand::cli
