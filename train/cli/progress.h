// Progress: what a person sees on stderr while something takes its time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace longhand::cli {

/// A bar on a terminal, redrawn at most ten times a second; lines every few seconds elsewhere.
class Progress {
 public:
  enum class Mode { bar, lines, none };

  /// What suits stderr: a bar on a terminal that can move its cursor, none where `quiet`.
  static Mode mode_for_stderr(bool quiet);

  /// `what` is done, as "train" or "evaluate". Nothing is shown in the first `delay` seconds: short
  /// work needs no bar.
  Progress(Mode mode, std::string what, double delay = 0);
  /// Takes the bar away.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total` is done; `details` says more, such as the loss. Cheap: call it often.
  void update(int64_t done, int64_t total, const std::string& details);
  /// Writes a line that stays, above the bar. Not in mode none.
  void line(const std::string& text);
  /// Takes the bar away until the next update.
  void clear();
  /// As update(), for work that cannot tell how far it is.
  void pulse();

 private:
  using Clock = std::chrono::steady_clock;
  /// Whether it is time to show something again.
  bool due();
  void show(const std::string& text, double fraction);
  /// A negative fraction: how far it is, nobody knows.
  void draw(const std::string& text, double fraction);

  Mode mode_;
  std::string what_;
  double delay_;
  bool colour_;
  bool drawn_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
  bool begun_ = false;  // something was shown
  int64_t first_ = -1;  // what was done already when the clock began
};

/// Says, once something has taken two seconds, that it is being done and for how long; for what
/// cannot tell how far it is. From construction to destruction.
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
  // Computes nothing: it sleeps, and writes a line now and then.
  std::thread watcher_;
};

/// "0:07", "12:34", "3:05:00"
std::string duration(double seconds);

/// "987", "12.3k", "4.56M": three figures.
std::string short_number(double value);

}  // namespace longhand::cli
