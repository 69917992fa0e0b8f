// The program as a function: the library longhand::cli.
#pragma once

#include <cstdint>

namespace longhand::cli {

/// The program `longhand`, for a main() of your own that registers variants and tasks first:
///
///     int main(int argc, char** argv) {
///       longhand::attention::add("mine", my_spec());
///       return longhand::cli::main(argc, argv);
///     }
///
/// Returns the exit code; throws nothing. Call it once, before other threads run: it handles signals,
/// and sets LONGHAND_PLUGINS for the processes that it starts. They are this program again, with the
/// arguments of another command, so main() must do nothing that only some of them may do.
int main(int argc, char** argv);

/// Begins to catch signals, which main() does first. Calling it earlier lets no signal end the process
/// before that.
void catch_signals();

/// Ends the process with a message if its address space is limited to less than libraries need with this
/// many further threads of OpenBLAS. They would not fail but hang: one that cannot allocate its buffer
/// tries again without end. Call it before their constructors, if possible.
void refuse_small_address_space(uint64_t threads);

/// Ends the process with this exit code once its output is flushed. Unlike a return from main(), it runs
/// no destructors of libraries: that of OpenBLAS may wait for ever where memory is short.
[[noreturn]] void leave(int code);

}  // namespace longhand::cli
