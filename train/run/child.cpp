#include "longhand/train/run/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/data/file.h"

extern char** environ;

namespace longhand::train {
namespace {

/// The number after a word at the start of a line; 0 if there is none.
int64_t number_in(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return 0;
}

/// Returns how many processes the kernel has killed for lack of memory since it was started.
int64_t memory_kills() {
  return std::max(number_in("/proc/vmstat", "oom_kill"),
                  number_in("/sys/fs/cgroup/memory.events", "oom_kill"));
}

int open_to_append(const std::filesystem::path& path) {
  // No symbolic links, which the folder of an untrusted sweep may hold.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  check<DataError>(file >= 0, "cannot write ", path.string(), ": ", data::system_reason());
  return file;
}

std::vector<std::string> environment(const std::vector<std::string>& without,
                                     std::vector<std::string> out) {
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (std::ranges::find(without, text.substr(0, text.find('='))) == without.end())
      out.push_back(text);
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// Signals that arrive between vfork() and execve() must neither run this process's handlers in the
/// child nor be lost: they are blocked before, and have their default effect afterwards.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  /// In the child: resets handlers as execve() does, but before signals are unblocked.
  static void reset_handlers() {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
      action = {};
      action.sa_handler = SIG_DFL;
      sigaction(number, &action, nullptr);
    }
  }

 private:
  sigset_t before_;
};

/// Starts the process with these files as stdout and stderr; -1: inherited. The child shares this
/// process's memory until execve(), so it must only make system calls. fork() would run OpenBLAS's
/// handler, which stops its threads and waits forever for one that cannot allocate memory.
pid_t start(const ChildOptions& options, char* const* argv, char* const* envp, const int out,
            const int err) {
  const pid_t parent = getpid();
  const BlockedSignals blocked;
  const pid_t child = vfork();
  if (child != 0) return child;
  BlockedSignals::reset_handlers();
  setpgid(0, 0);  // before a signal to the parent's group can end it
  blocked.restore();
  prctl(PR_SET_PDEATHSIG, options.death_signal);
  if (getppid() != parent) _exit(126);  // the parent has already ended
  if (options.in >= 0) dup2(options.in, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  for (const int file : options.inherited) fcntl(file, F_SETFD, 0);
  if (const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); file >= 0) {
    [[maybe_unused]] const auto written = write(file, "1000", 4);
    close(file);
  }
  execve(options.program.c_str(), argv, envp);
  _exit(127);
}

}  // namespace

std::filesystem::path own_program() {
  // Not the link's target: another file of this name may have taken its place.
  const char* const started_as = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (access("/proc/self/exe", X_OK) == 0 || !started_as) return "/proc/self/exe";
  return std::filesystem::absolute(started_as);
}

Child::Child(const ChildOptions& options) : most_seconds_(options.most_seconds) {
  std::error_code is_no_link;
  const std::filesystem::path link = std::filesystem::read_symlink(options.program, is_no_link);
  std::vector<std::string> arguments = {(is_no_link ? options.program : link).filename().string()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> variables = environment(options.without, options.with);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
  int out = options.out.empty() ? -1 : open_to_append(options.out);
  if (options.capture) {
    std::array<int, 2> ends{};
    check(pipe2(ends.data(), O_CLOEXEC) == 0, "cannot create a pipe: ", data::system_reason());
    pipe_ = ends[0];
    out = ends[1];
  }
  const int err = options.err.empty() ? -1 : open_to_append(options.err);
  kills_before_ = memory_kills();
  begin_ = clock_seconds();
  pid_ = start(options, argv.data(), envp.data(), out, err);
  const int reason = errno;
  for (const int file : {out, err})
    if (file >= 0) close(file);
  check(pid_ > 0, "cannot start a process: ", data::system_reason(reason));
  setpgid(pid_, pid_);  // whichever process is first
}

Child::~Child() {
  if (pipe_ >= 0) close(pipe_);
  if (ended_) return;
  kill(pid_, SIGKILL);
  wait();
}

bool Child::readable() {
  for (pollfd pipe{pipe_, POLLIN, 0};;) {
    const double left = begin_ + most_seconds_ - clock_seconds();
    // In slices, because poll() takes milliseconds as int.
    const int ready = ::poll(&pipe, 1, static_cast<int>(std::clamp(left, 0.0, 60.0) * 1000));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) break;
  }
  timed_out_ = true;
  signal(SIGKILL);
  return false;
}

std::string Child::output() {
  std::string text;
  for (std::array<char, 4096> buffer{}; readable();) {
    const ssize_t count = read(pipe_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  return text;
}

void Child::signal(int number) const {
  if (!ended_) kill(pid_, number);
}

std::optional<Ended> Child::poll() { return ended(WNOHANG); }

Ended Child::wait() {
  while (!timed_out_ && std::isfinite(most_seconds_) && !poll()) {
    timed_out_ = clock_seconds() - begin_ > most_seconds_;
    if (timed_out_) signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return *ended(0);
}

std::optional<Ended> Child::ended(int flags) {
  if (ended_) return ended_;
  int status = 0;
  rusage usage{};
  pid_t result = 0;
  do result = wait4(pid_, &status, flags, &usage);
  while (result < 0 && errno == EINTR);
  if (result == 0) return std::nullopt;
  check(result == pid_, "cannot wait for process ", pid_, ": ", data::system_reason());
  Ended out;
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  out.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  out.timed_out = timed_out_;
  out.out_of_memory = !timed_out_ && out.signal == SIGKILL && memory_kills() > kills_before_;
  out.peak_memory = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  out.seconds = clock_seconds() - begin_;
  ended_ = out;
  return ended_;
}

}  // namespace longhand::train
