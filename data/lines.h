// Text files line by line, with errors that name file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace longhand::data {

/// Whether a path is a directory. False also if that cannot be determined: opening the path then
/// reports the reason.
bool is_folder(const std::filesystem::path& path);

/// The longest line of a text file, and the longest record of several lines, in bytes, so that a
/// file without line breaks does not exhaust memory.
inline constexpr size_t most_line_bytes = size_t{64} << 20;

/// Reads the lines of a regular file. Throws DataError, naming file and line, if it cannot be read,
/// and for a line of more than most_line_bytes.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path);

  /// Reads the next line, without its end (LF or CR LF); a byte order mark at the start of the file
  /// is skipped. False after the last one. The line is valid until the next call.
  bool next(std::string_view& line);
  /// The number of the last line, from 1; 0 before the first.
  int64_t number() const { return number_; }
  /// Whether the last line ended with CR LF.
  bool ended_with_cr() const { return ended_with_cr_; }

 private:
  std::filesystem::path path_;
  std::ifstream in_;
  std::string text_;
  int64_t number_ = 0;
  bool ended_with_cr_ = false;
};

}  // namespace longhand::data
