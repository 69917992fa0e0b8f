// What the program prints: results to stdout, messages to stderr, and there the progress of long operations, too.
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

/// Opens /dev/null in place of each of stdin, stdout and stderr that is closed, so that no file opened
/// later takes its place. Writing to stdout still fails.
void open_standard_streams();

/// Writes bytes of the result of a command to stdout. If stdout is a closed pipe, this and all later output is
/// dropped; throws Error if it cannot be written for any other reason.
void write_stdout(std::string_view text);
/// Writes what is buffered; throws as write_stdout() does. main() calls it at the end.
void flush_stdout();
/// Whether output is dropped.
bool stdout_is_closed();
/// Writes to stderr. Errors are ignored: they do not affect the result.
void write_stderr(std::string_view text);

/// A name from outside, on one line: line breaks and tabs are escaped as well.
std::string one_line(std::string_view name);

/// Text for people and their terminals: see printable().
template <class... T>
void print_stdout(fmt::format_string<T...> format, T&&... args) {
  write_stdout(printable(fmt::format(format, std::forward<T>(args)...)));
}
template <class... T>
void print_stderr(fmt::format_string<T...> format, T&&... args) {
  write_stderr(printable(fmt::format(format, std::forward<T>(args)...)));
}
/// For commands whose result is in files: errors of writing are ignored.
template <class... T>
void print_stdout_if_possible(fmt::format_string<T...> format, T&&... args) {
  try {
    print_stdout(format, std::forward<T>(args)...);
    flush_stdout();
  } catch (const Error&) {
  }
}

// ---- progress

/// A bar on a terminal that can move its cursor, redrawn at most ten times a second; lines every few seconds
/// elsewhere; nothing if `quiet`.
class Progress {
 public:
  /// `what` names the operation, such as "train" or "evaluate". Nothing is shown in the first `delay`
  /// seconds, because short operations need no bar.
  Progress(bool quiet, std::string what, double delay = 0);
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `done` of `total` is complete; `details` adds more, such as the loss. Cheap: may be
  /// called often.
  void update(int64_t done, int64_t total, const std::string& details);
  /// Several lines in place of the bar, as many as fit, cut to the width of the terminal; nothing elsewhere.
  void show(const std::vector<std::string>& lines);
  /// Whether there is a terminal that shows a bar.
  bool is_live() const { return mode_ == Mode::bar; }
  /// Writes a permanent line above the bar or the lines, unless quiet.
  void line(const std::string& text);
  /// Removes the bar or the lines until the next update.
  void clear();
  /// Like update(), for operations of unknown progress.
  void pulse();

 private:
  /// Whether the display is due for an update.
  bool due();
  /// As a line, or as text behind the bar. A negative fraction means that progress is unknown.
  void draw(const std::string& what, double fraction);

  enum class Mode { bar, lines, none } mode_;
  std::string what_;
  double delay_;
  bool colour_;
  bool drawn_ = false;              // the bar
  std::vector<std::string> lines_;  // in place of the bar
  size_t rows_ = 0;                 // of them, drawn
  double begin_ = clock_seconds();
  double shown_ = -std::numeric_limits<double>::infinity();  // when something was, last
  int64_t first_ = -1;  // the work already done when the clock started
};

/// Shows an operation and its duration, or its progress where that is known, once it has taken two
/// seconds; from construction to destruction.
class Waiting {
 public:
  Waiting(bool quiet, std::string what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// As Progress::update(), shown until the next call however long that takes.
  void update(int64_t done, int64_t total, const std::string& details);

 private:
  void watch();

  Progress progress_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  int64_t done_ = 0, total_ = 0;  // 0: unknown
  std::string details_;
  // Computes nothing: it sleeps and occasionally writes a line.
  std::thread watcher_;
};

/// "0:07", "12:34", "3:05:00"
std::string duration(double seconds);

/// "987", "12.3k", "4.56M": three significant digits.
std::string short_number(double value);

}  // namespace longhand::cli
