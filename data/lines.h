// Text files line by line, with errors that say where; and is it a file at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace longhand::data {

/// False for what is not there or cannot be looked at, too: who then opens it as a file learns why.
bool is_folder(const std::filesystem::path& path);

/// Calls visit(number, line) for every line, numbered from 1, without its end (LF or CR LF); a byte
/// order mark at the start of the file is left out. A DataError that visit throws is thrown on as
/// "PATH:NUMBER: MESSAGE". Throws DataError if the file cannot be read.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, std::string_view line)>& visit);

/// The parts of a line between tabs; at least one.
std::vector<std::string_view> split_columns(std::string_view line);

}  // namespace longhand::data
