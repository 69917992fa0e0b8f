// Processes that are killed at every system call they make.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "tests/support/catch.h"

namespace longhand::test {

/// Runs action() in one child process after another; number n is killed with SIGKILL when it enters its
/// system call n + 1. Calls check(n) in this process after each. Ends when action() has completed, and
/// returns the number of processes that were killed; 0 if processes cannot be traced here. The action
/// must use one thread only.
template <class Action, class Check>
int64_t kill_at_every_system_call(Action&& action, Check&& check) {
  for (int64_t n = 0;; ++n) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      raise(SIGSTOP);
      try {
        action();
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    // Each call stops the process twice: when it is entered, and when it returns.
    for (int64_t stops = -1; stops < 2 * n + 1 && WIFSTOPPED(status); ++stops) {
      ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
      waitpid(pid, &status, 0);
    }
    if (WIFEXITED(status)) {
      const bool traced = WEXITSTATUS(status) != 77;
      if (traced) REQUIRE(WEXITSTATUS(status) == 0);
      return traced ? n : 0;
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    check(n);
  }
}

}  // namespace longhand::test
