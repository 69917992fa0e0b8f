// A sandbox for code that reads untrusted files.
#pragma once

namespace longhand::train {

/// From now on this thread, and those that it starts, can only read open files, write to stdout and
/// stderr, allocate memory, and end: all other system calls fail with EPERM, among them those that open
/// files, start programs or map memory as executable (seccomp). Returns whether this system has such
/// filters; false in a build with sanitizers, which make other calls.
bool enter_sandbox();

}  // namespace longhand::train
