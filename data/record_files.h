// Records as data: a file that is split, or a folder with a file for each split.
#pragma once

#include <filesystem>
#include <string>

#include "longhand/data/records.h"

namespace longhand::data {

/// The format of a file, or of files train, validation and test in a folder; TSV if there is none.
RecordFormat format_of_data(const std::filesystem::path& path);

/// The file of a split in a folder: train, validation (or val, dev) or test, all with the same
/// extension; empty if there is none.
std::filesystem::path find_split(const std::filesystem::path& folder, const std::string& split);
/// The same; throws DataError, listing what the folder holds, if there is none.
std::filesystem::path file_of_split(const std::filesystem::path& folder, const std::string& split);

}  // namespace longhand::data
