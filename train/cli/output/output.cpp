#include "longhand/train/cli/output/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

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

}  // namespace

void open_standard_streams() {
  // open() returns the smallest number that is free.
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

}  // namespace longhand::cli
