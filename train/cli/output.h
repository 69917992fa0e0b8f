// What the program prints: results to stdout, messages to stderr.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace longhand::cli {

/// Opens /dev/null in place of each of stdin, stdout and stderr that is closed, so that no file opened
/// later takes its place. Writing to stdout still fails.
void open_standard_streams();

/// Writes the result of a command to stdout. If stdout is a closed pipe, this and all later output is
/// dropped; throws Error if it cannot be written for any other reason.
void write_stdout(std::string_view text);
/// Writes what is buffered; throws as write_stdout() does. main() calls it at the end.
void flush_stdout();
/// Whether output is dropped.
bool stdout_is_closed();
/// Writes a message to stdout, for commands whose result is in files. Errors are ignored.
void write_stdout_if_possible(std::string_view text);

/// Writes a message to stderr. Errors are ignored: they do not affect the result.
void write_stderr(std::string_view text);

template <class... T>
void print_stdout(fmt::format_string<T...> format, T&&... args) {
  write_stdout(fmt::format(format, std::forward<T>(args)...));
}
template <class... T>
void print_stderr(fmt::format_string<T...> format, T&&... args) {
  write_stderr(fmt::format(format, std::forward<T>(args)...));
}

}  // namespace longhand::cli
