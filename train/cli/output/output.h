// The program's output: results to stdout, messages and progress of long operations to stderr.
#pragma once

#include <fmt/format.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/core/utf8.h"

namespace longhand::cli {

/// Opens /dev/null in place of a closed stdin, stdout or stderr, so that no file opened later takes
/// its place. Writing to stdout still fails.
void open_standard_streams();

/// Writes bytes of a command's result to stdout. If stdout is a closed pipe, drops this and all
/// later output; throws Error if writing fails for any other reason.
void write_stdout(std::string_view text);
/// Writes buffered output; throws as write_stdout() does. main() calls it at the end.
void flush_stdout();
/// Returns whether output is being dropped.
bool stdout_is_closed();
/// Writes to stderr. Errors are ignored: they do not affect the result.
void write_stderr(std::string_view text);

/// Returns an external name on one line: line breaks and tabs are escaped too.
std::string one_line(std::string_view name);

/// Writes text for people and their terminals: see printable().
template <class... T>
void print_stdout(fmt::format_string<T...> format, T&&... args) {
  write_stdout(printable(fmt::format(format, std::forward<T>(args)...)));
}
template <class... T>
void print_stderr(fmt::format_string<T...> format, T&&... args) {
  write_stderr(printable(fmt::format(format, std::forward<T>(args)...)));
}
/// For commands whose result is in files: ignores write errors.
template <class... T>
void print_stdout_if_possible(fmt::format_string<T...> format, T&&... args) {
  try {
    print_stdout(format, std::forward<T>(args)...);
    flush_stdout();
  } catch (const Error&) {
  }
}

// ---- progress

/// A bar on a terminal that can move its cursor, redrawn at most ten times a second; elsewhere,
/// lines every few seconds; nothing if `quiet`.
class Progress {
 public:
  /// `what` names the operation, such as "train" or "evaluate". Nothing is shown for the first
  /// `delay` seconds, because short operations need no bar.
  Progress(bool quiet, std::string what, double delay = 0);
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `done` of `total` is complete; `details` adds more, such as the loss. Cheap
  /// enough to call often.
  void update(int64_t done, int64_t total, const std::string& details);
  /// Shows lines instead of the bar, as many as fit, cut to the terminal width; nothing elsewhere.
  void show(const std::vector<std::string>& lines);
  /// Returns whether a terminal shows a bar.
  bool is_live() const { return mode_ == Mode::bar; }
  /// Writes a permanent line above the bar or the lines, unless quiet.
  void line(const std::string& text);
  /// Removes the bar or the lines until the next update.
  void clear();
  /// Like update(), for operations with unknown progress.
  void pulse();

 private:
  /// Returns whether the display is due for an update.
  bool due();
  /// Draws a line, or text after the bar. A negative fraction means unknown progress.
  void draw(const std::string& what, double fraction);

  enum class Mode { bar, lines, none } mode_;
  std::string what_;
  double delay_;
  bool colour_;
  bool drawn_ = false;              // whether the bar is drawn
  std::vector<std::string> lines_;  // shown instead of the bar
  size_t rows_ = 0;                 // rows drawn for them
  double begin_ = clock_seconds();
  double shown_ = -std::numeric_limits<double>::infinity();  // time of the last output
  int64_t first_ = -1;  // the work already done when the clock started
};

/// Shows an operation and its duration, or its progress if known, once it has taken two seconds;
/// from construction to destruction.
class Waiting {
 public:
  Waiting(bool quiet, std::string what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Like Progress::update(), shown until the next call, however long that takes.
  void update(int64_t done, int64_t total, const std::string& details);

 private:
  void watch();

  Progress progress_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  int64_t done_ = 0, total_ = 0;  // 0: unknown
  std::string details_;
  // Computes nothing: sleeps and occasionally writes a line.
  std::thread watcher_;
};

/// Returns text such as "0:07", "12:34" or "3:05:00".
std::string duration(double seconds);

/// Returns text such as "987", "12.3k" or "4.56M": three significant digits.
std::string short_number(double value);

}  // namespace longhand::cli
