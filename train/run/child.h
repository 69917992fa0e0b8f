// Child: runs a child process and reports how it ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace longhand::train {

/// Returns the running program's path: /proc/self/exe or, without /proc, the name it was run as.
std::filesystem::path own_program();

struct ChildOptions {
  std::filesystem::path program = own_program();
  std::vector<std::string> arguments{};  // without the program name
  /// Files to which stdout and stderr are appended; empty: inherited from this process.
  std::filesystem::path out{}, err{};
  int in = -1;           // the file descriptor that becomes stdin; -1: inherited
  bool capture = false;  // Child::output() reads stdout instead
  /// File descriptors that stay open in the child; all others close if they are O_CLOEXEC.
  std::vector<int> inherited{};
  /// Environment variables to remove, and "NAME=value" entries to add.
  std::vector<std::string> without{}, with{};
  /// The signal that the child receives if this process ends before it.
  int death_signal = 9;  // SIGKILL
  /// The child is killed if it runs longer than this; checked by output() and wait().
  double most_seconds = std::numeric_limits<double>::infinity();
};

/// How a process ended.
struct Ended {
  int code = 0;                // exit code, if signal is 0
  int signal = 0;              // the signal that ended it
  bool out_of_memory = false;  // the kernel killed a process for lack of memory meanwhile
  bool timed_out = false;      // killed after ChildOptions::most_seconds
  int64_t peak_memory = 0;     // resident bytes
  double seconds = 0;          // from start to end
};

/// A running process in its own process group: a signal that a terminal sends to this program does
/// not reach it. When memory runs out, the kernel kills the child rather than its parent.
class Child {
 public:
  /// Throws Error if the process cannot be started, DataError if a file cannot be opened.
  explicit Child(const ChildOptions& options);
  /// Kills the process if it is still running.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// With `capture`: returns its stdout until it closes that or ends. Call at most once.
  std::string output();
  /// Returns how it ended; nothing while it is running.
  std::optional<Ended> poll();
  /// Waits until it ends.
  Ended wait();

 private:
  std::optional<Ended> ended(int flags);
  /// Returns whether there is something to read within most_seconds; if not, kills the child.
  bool readable();

  pid_t pid_ = -1;
  int pipe_ = -1;  // the end to read from
  int64_t kills_before_ = 0;
  double begin_ = 0, most_seconds_ = 0;
  bool timed_out_ = false;
  std::optional<Ended> ended_;
};

}  // namespace longhand::train
