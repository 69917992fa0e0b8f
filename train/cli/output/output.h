// What the program prints: results to stdout, messages to stderr.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "longhand/core/error.h"
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

}  // namespace longhand::cli
