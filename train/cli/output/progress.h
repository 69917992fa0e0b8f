// Progress: display of long operations on stderr.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "longhand/core/measure/clock.h"

namespace longhand::cli {

/// The size of the terminal that stderr is; 80 x 24 if it is none.
struct TerminalSize {
  size_t columns, rows;
};
TerminalSize terminal_size();

/// A bar on a terminal, redrawn at most ten times a second; lines every few seconds elsewhere.
class Progress {
 public:
  enum class Mode { bar, lines, none };

  /// The mode for stderr: a bar on a terminal that can move its cursor, none if `quiet`.
  static Mode mode_for_stderr(bool quiet);

  /// `what` names the operation, such as "train" or "evaluate". Nothing is shown in the first `delay`
  /// seconds, because short operations need no bar.
  Progress(Mode mode, std::string what, double delay = 0);
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `done` of `total` is complete; `details` adds more, such as the loss. Cheap: may be
  /// called often.
  void update(int64_t done, int64_t total, const std::string& details);
  /// Writes a permanent line above the bar. Does nothing in mode none.
  void line(const std::string& text);
  /// Removes the bar until the next update.
  void clear();
  /// Like update(), for operations of unknown progress.
  void pulse();

 private:
  /// Whether the display is due for an update.
  bool due();
  void show(const std::string& text, double fraction);
  /// A negative fraction means that progress is unknown.
  void draw(const std::string& what, double fraction);

  Mode mode_;
  std::string what_;
  double delay_;
  bool colour_;
  bool drawn_ = false;
  double begin_ = clock_seconds();
  double shown_ = begin_;
  bool begun_ = false;  // whether something was shown
  int64_t first_ = -1;  // the work already done when the clock started
};

/// Several lines that are redrawn in place on a terminal, below permanent ones; elsewhere only
/// permanent ones are written.
class LiveLines {
 public:
  explicit LiveLines(Progress::Mode mode) : mode_(mode) {}
  /// Removes the lines.
  ~LiveLines();
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;

  Progress::Mode mode() const { return mode_; }
  /// Replaces the lines shown; as many as fit, cut to the width of the terminal.
  void show(const std::vector<std::string>& lines);
  /// Writes a permanent line above them. Does nothing in mode none.
  void line(const std::string& text);

 private:
  void clear();

  Progress::Mode mode_;
  std::vector<std::string> lines_;
  size_t drawn_ = 0;
};

/// Shows an operation of unknown progress, and its duration, once it has taken two seconds; from
/// construction to destruction.
class Waiting {
 public:
  Waiting(Progress::Mode mode, std::string what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void watch();

  Progress progress_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  // Computes nothing: it sleeps and occasionally writes a line.
  std::thread watcher_;
};

/// "0:07", "12:34", "3:05:00"
std::string duration(double seconds);

/// "987", "12.3k", "4.56M": three significant digits.
std::string short_number(double value);

}  // namespace longhand::cli
