// A sandbox for code that reads untrusted files.
#pragma once

#include <cstdint>

namespace longhand::train {

/// Restricts this thread and its new threads to reading open files, writing to stdout and stderr,
/// allocating memory, and ending. All other system calls fail with EPERM, including opening files,
/// starting programs and mapping executable memory (seccomp). Returns whether the system supports
/// such filters; false in builds with sanitizers, which make other calls.
bool enter_sandbox();

/// Limits this process to the memory and time that reading a file of this size needs, to opening
/// one more file, and to writing only its output.
void limit_resources(uint64_t file_bytes);

}  // namespace longhand::train
