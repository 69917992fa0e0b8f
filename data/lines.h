// Text files line by line, with errors that name file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace longhand::data {

/// Whether a path is a directory. False also if that cannot be determined: opening the path then
/// reports the reason.
bool is_folder(const std::filesystem::path& path);

/// Calls visit(number, line) for each line, numbered from 1, without its end (LF or CR LF); a byte
/// order mark at the start of the file is skipped. A DataError that visit throws is rethrown as
/// "PATH:NUMBER: MESSAGE". Throws DataError if the file cannot be read.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, std::string_view line)>& visit);

/// Splits a line at tabs; returns at least one part.
std::vector<std::string_view> split_columns(std::string_view line);

}  // namespace longhand::data
