#include "longhand/train/cli/output/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "longhand/core/options.h"
#include "longhand/data/file.h"

namespace longhand::cli {
namespace {

bool dropped = false;

void check_written(bool ok) {
  if (ok) return;
  const int error = errno;
  dropped = true;
  check(error == EPIPE, "cannot write to stdout: ", data::system_reason(error));
}

constexpr double redraw_seconds = 0.1;
constexpr double line_seconds = 5;

/// Returns the terminal size, by default 80 x 24. Queried at every redraw, as windows change it.
winsize terminal_size() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  return size;
}

}  // namespace

void open_standard_streams() {
  // open() returns the lowest free descriptor.
  int file = STDIN_FILENO;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDONLY);
  if (file > STDERR_FILENO) close(file);
}

void write_stdout(std::string_view text) {
  if (!dropped) check_written(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void flush_stdout() {
  if (!dropped) check_written(std::fflush(stdout) == 0);
}

bool stdout_is_closed() { return dropped; }

void write_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

std::string one_line(std::string_view name) {
  return replaced(replaced(printable(name), '\n', "\\x0a"), '\t', "\\x09");
}

// ---- progress

Progress::Progress(bool quiet, std::string what, double delay)
    : what_(std::move(what)), delay_(delay) {
  const char *const plain = std::getenv("NO_COLOR"), *const term = std::getenv("TERM");
  colour_ = !plain || !*plain;
  const bool dumb = !term || std::string_view(term) == "dumb";
  mode_ = quiet ? Mode::none : isatty(STDERR_FILENO) && !dumb ? Mode::bar : Mode::lines;
}

Progress::~Progress() { clear(); }

bool Progress::due() {
  if (mode_ == Mode::none || clock_seconds() - begin_ < delay_) return false;
  if (clock_seconds() - shown_ < (mode_ == Mode::bar ? redraw_seconds : line_seconds)) return false;
  shown_ = clock_seconds();
  return true;
}

void Progress::update(int64_t done, int64_t total, const std::string& details) {
  if (first_ < 0) {
    first_ = done;
    begin_ = clock_seconds();
  }
  if (!due()) return;
  std::string text = fmt::format("{} {}/{}", what_, done, total);
  if (!details.empty()) text += "  " + details;
  // The remaining time follows from the work since the clock started, not by an earlier process.
  if (done > first_ && done < total)
    text += fmt::format("  {} left",
                        duration((clock_seconds() - begin_) * static_cast<double>(total - done) /
                                 static_cast<double>(done - first_)));
  draw(text, total > 0
                 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0)
                 : 0);
}

void Progress::pulse() {
  if (due()) draw(fmt::format("{}, {}", what_, duration(clock_seconds() - begin_)), -1);
}

void Progress::draw(const std::string& what, double fraction) {
  if (mode_ == Mode::lines) return print_stderr("{}\n", what);
  // Leave the last column free: some terminals would wrap the line.
  const size_t width = terminal_size().ws_col - 1u;
  const std::string text = printable(what);
  std::string out = "\r";
  constexpr size_t frame = 4, shortest = 8, longest = 40;  // "[", "] " and a space
  if (fraction >= 0 && width >= width_of(text) + frame + shortest) {
    const size_t cells = std::min(width - width_of(text) - frame, longest);
    const size_t full = static_cast<size_t>(fraction * static_cast<double>(cells));
    out += fmt::format("[{}{:#<{}}{}{:.<{}}] {}", colour_ ? "\x1b[32m" : "", "", full,
                       colour_ ? "\x1b[0m" : "", "", cells - full, text);
  } else {
    out += first_characters(text, width);
  }
  write_stderr(out + "\x1b[K");
  drawn_ = true;
}

void Progress::show(const std::vector<std::string>& lines) {
  if (!is_live()) return;
  lines_ = lines;
  clear();
  const winsize size = terminal_size();
  std::string out;
  // Leave one row free for the cursor.
  for (const std::string& each : lines_) {
    if (rows_ + 1 >= size.ws_row) break;
    out.append(first_characters(printable(each), size.ws_col - 1u)).append("\n");
    ++rows_;
  }
  write_stderr(out);
}

void Progress::clear() {
  if (rows_ > 0)
    write_stderr(fmt::format("\r\x1b[{}A\x1b[J", rows_));
  else if (drawn_)
    write_stderr("\r\x1b[K");
  rows_ = 0;
  drawn_ = false;
}

void Progress::line(const std::string& text) {
  if (mode_ == Mode::none) return;
  clear();
  print_stderr("{}\n", text);
  if (!lines_.empty()) show(std::vector<std::string>(lines_));
}

Waiting::Waiting(bool quiet, std::string what) : progress_(quiet, std::move(what), 2) {
  if (!quiet) watcher_ = std::thread([this] { watch(); });
}

Waiting::~Waiting() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (watcher_.joinable()) watcher_.join();
}

void Waiting::update(int64_t done, int64_t total, const std::string& details) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  total_ = total;
  details_ = details;
}

void Waiting::watch() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, std::chrono::duration<double>(redraw_seconds),
                         [this] { return is_over_; }))
    if (total_ > 0)
      progress_.update(done_, total_, details_);
    else
      progress_.pulse();
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::min(seconds + 0.5, 1e9));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string short_number(double value) {
  constexpr const char* units[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (value >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

}  // namespace longhand::cli
