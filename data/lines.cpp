#include "longhand/data/lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

#include "longhand/core/error.h"
#include "longhand/data/file.h"

namespace longhand::data {

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, std::string_view line)>& visit) {
  // A folder can be opened as a file; only reading it fails, without a reason.
  check<DataError>(!is_folder(path), path.string(), ": expected a file, got a folder");
  const RegularFile regular(path);  // reading a pipe or a device may never end
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  check<DataError>(in.is_open(), path.string(), ": cannot be opened: ", std::strerror(errno));
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    std::string_view line = text;
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    if (line.ends_with('\r')) line.remove_suffix(1);
    try {
      visit(number, line);
    } catch (const DataError& error) {
      throw DataError(concat_message(path.string(), ":", number, ": ", error.what()));
    }
  }
  check<DataError>(!in.bad(), path.string(), ": cannot be read: ", std::strerror(errno));
}

std::vector<std::string_view> split_columns(std::string_view line) {
  std::vector<std::string_view> columns;
  for (size_t tab; (tab = line.find('\t')) != std::string_view::npos; line.remove_prefix(tab + 1))
    columns.push_back(line.substr(0, tab));
  columns.push_back(line);
  return columns;
}

}  // namespace longhand::data
