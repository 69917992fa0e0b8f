// A sandbox for code that reads untrusted files.
#pragma once

#include <cstdint>

namespace longhand::train {

/// From now on this thread, and those that it starts, can only read open files, write to stdout and
/// stderr, allocate memory, and end: all other system calls fail with EPERM, among them those that open
/// files, start programs or map memory as executable (seccomp). Returns whether this system has such
/// filters; false in a build with sanitizers, which make other calls.
bool enter_sandbox();

/// From now on this process can take no more memory and time than reading a file of this size
/// needs, open one file more, and write only its output.
void limit_resources(uint64_t file_bytes);

}  // namespace longhand::train
