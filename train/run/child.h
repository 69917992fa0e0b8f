// Child: a program run as a process of its own, whose end, however it comes, is reported.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace longhand::train {

/// The path of the program that is running: /proc/self/exe or, without /proc, what it was started as.
std::filesystem::path own_program();

struct ChildOptions {
  std::filesystem::path program = own_program();
  std::vector<std::string> arguments{};  // without the name of the program
  /// Files that stdout and stderr are appended to; empty: those of this process.
  std::filesystem::path out{}, err{};
  int in = -1;           // the file descriptor that becomes stdin; -1: that of this process
  bool capture = false;  // stdout is read by Child::output() instead
  /// File descriptors that stay open in the child; all others are closed if they are O_CLOEXEC.
  std::vector<int> inherited{};
  /// Environment variables that the child does not have, and "NAME=value" that it has in addition.
  std::vector<std::string> without{}, with{};
  /// The signal that the child receives if this process ends before it.
  int death_signal = 9;  // SIGKILL
  /// The child is killed once it has run for longer; checked by output() and wait().
  double most_seconds = std::numeric_limits<double>::infinity();
};

/// How a process ended.
struct Ended {
  int code = 0;                // exit code, if signal is 0
  int signal = 0;              // that ended it
  bool out_of_memory = false;  // the kernel has killed a process for lack of memory meanwhile
  bool timed_out = false;      // killed after ChildOptions::most_seconds
  int64_t peak_memory = 0;     // resident bytes
  double seconds = 0;          // from start to end
};

/// A running process, in a process group of its own: a signal that a terminal sends to this program
/// does not reach it. If memory runs out, the kernel kills it rather than its parent.
class Child {
 public:
  /// Throws Error if the process cannot be started, DataError if a file cannot be opened.
  explicit Child(const ChildOptions& options);
  /// Kills it if it has not ended.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// With `capture`: what it writes to stdout, until it closes that or ends. Call at most once.
  std::string output();
  /// How it ended; nothing while it runs.
  std::optional<Ended> poll();
  /// Waits for its end.
  Ended wait();

 private:
  std::optional<Ended> ended(int flags);
  /// Whether there is something to read before most_seconds have passed; if not, kills the child.
  bool readable();

  pid_t pid_ = -1;
  int pipe_ = -1;  // to read from
  int64_t kills_before_ = 0;
  double begin_ = 0, most_seconds_ = 0;
  bool timed_out_ = false;
  std::optional<Ended> ended_;
};

}  // namespace longhand::train
