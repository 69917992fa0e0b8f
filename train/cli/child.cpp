#include "longhand/train/cli/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "longhand/core/error.h"
#include "longhand/train/cli/command.h"

namespace longhand::cli {

std::optional<std::string> run_program_with(const std::vector<std::string>& arguments,
                                            const std::string& what, int& code) {
  std::vector<std::string> words = {"longhand"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  std::array<int, 2> ends{};
  check(pipe2(ends.data(), O_CLOEXEC) == 0, what, ": cannot create a pipe");
  const pid_t child = fork();
  check(child >= 0, what, ": cannot start a process");
  if (child == 0) {  // system calls only: other threads may hold locks
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    // If memory runs out, this process is the one to be killed.
    if (const int file = open("/proc/self/oom_score_adj", O_WRONLY); file >= 0) {
      [[maybe_unused]] const auto written = write(file, "1000", 4);
      close(file);
    }
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  for (std::array<char, 4096> buffer;;) {
    const ssize_t count = read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  code = WIFEXITED(status) ? WEXITSTATUS(status) : failure;
  if (WIFSIGNALED(status))
    fmt::print(stderr, "longhand: {}: ended by signal {}{}\n", what, WTERMSIG(status),
               WTERMSIG(status) == SIGKILL ? " (memory?)" : "");
  if (code != success) return std::nullopt;
  return text;
}

}  // namespace longhand::cli
