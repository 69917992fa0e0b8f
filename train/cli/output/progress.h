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

/// How progress is shown on stderr: by a bar on a terminal that can move its cursor; not at all if `quiet`.
enum class ProgressMode { bar, lines, none };
ProgressMode progress_mode(bool quiet);

/// A bar on a terminal, redrawn at most ten times a second; lines every few seconds elsewhere.
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
  /// Writes a permanent line above the bar, unless quiet.
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

  ProgressMode mode_;
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
  explicit LiveLines(bool quiet) : mode_(progress_mode(quiet)) {}
  /// Removes the lines.
  ~LiveLines();
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;

  bool is_live() const { return mode_ == ProgressMode::bar; }
  /// Replaces the lines shown; as many as fit, cut to the width of the terminal.
  void show(const std::vector<std::string>& lines);
  /// Writes a permanent line above them, unless quiet.
  void line(const std::string& text);

 private:
  void clear();

  ProgressMode mode_;
  std::vector<std::string> lines_;
  size_t drawn_ = 0;
};

/// Shows an operation of unknown progress, and its duration, once it has taken two seconds; from
/// construction to destruction.
class Waiting {
 public:
  Waiting(bool quiet, std::string what);
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
