#include "longhand/data/lines.h"

#include <cerrno>
#include <ios>
#include <system_error>

#include "longhand/core/error.h"
#include "longhand/data/file.h"

namespace longhand::data {

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

LineReader::LineReader(const std::filesystem::path& path) : path_(path) {
  // A folder can be opened as a file; only reading it fails, without stating a reason.
  check<DataError>(!is_folder(path), path.string(), ": expected a file, got a folder");
  const RegularFile regular(path);  // reading a pipe or a device may never end
  errno = 0;
  in_.open(path, std::ios::binary);
  check<DataError>(in_.is_open(), path.string(), ": cannot be opened: ", system_reason());
}

bool LineReader::next(std::string_view& line) {
  constexpr int end = std::char_traits<char>::eof();
  text_.clear();
  int c = end;
  try {
    for (std::streambuf& in = *in_.rdbuf(); (c = in.sbumpc()) != end && c != '\n';) {
      check<DataError>(text_.size() < most_line_bytes, path_.string(), ":", number_ + 1,
                       ": a line of more than ", most_line_bytes, " bytes");
      text_.push_back(static_cast<char>(c));
    }
  } catch (const std::ios_base::failure&) {
    throw DataError(concat_message(path_.string(), ": cannot be read: ", system_reason()));
  }
  if (c == end && text_.empty()) return false;
  ++number_;
  line = text_;
  if (number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  ended_with_cr_ = line.ends_with('\r');
  if (ended_with_cr_) line.remove_suffix(1);
  return true;
}

}  // namespace longhand::data
