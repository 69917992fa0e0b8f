#include "longhand/data/record_files.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <vector>

#include "longhand/data/lines.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array extensions = {".tsv", ".csv", ".jsonl", ".ndjson", ".json"};

std::vector<std::string> names_of_split(const std::string& split) {
  if (split == "validation") return {"validation", "val", "dev"};
  return {split};
}

fs::path find_file(const fs::path& folder, const std::string& split, const std::string& extension) {
  std::error_code ignored;
  for (const std::string& name : names_of_split(split))
    if (fs::exists(folder / (name + extension), ignored)) return folder / (name + extension);
  return {};
}

/// The extension of the files in a folder; empty if there is none.
std::string extension_in(const fs::path& folder) {
  for (const char* split : {"train", "validation", "test"})
    for (const char* extension : extensions)
      if (!find_file(folder, split, extension).empty()) return extension;
  return "";
}

/// "a.csv, b.csv", the first names in a folder.
std::string names_in_folder(const fs::path& folder) {
  constexpr size_t most = 10, most_read = 1000;
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end;
       !failed && at != end && names.size() < most_read; at.increment(failed))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) out += ", ...";
  return out.empty() ? "nothing" : out;
}

}  // namespace

RecordFormat format_of_data(const fs::path& path) {
  return record_format(is_folder(path) ? fs::path("train" + extension_in(path)) : path);
}

fs::path find_split(const fs::path& folder, const std::string& split) {
  return find_file(folder, split, extension_in(folder));
}

fs::path file_of_split(const fs::path& folder, const std::string& split) {
  fs::path file = find_split(folder, split);
  if (!file.empty()) return file;
  const std::string extension = extension_in(folder);
  std::string names;
  for (const std::string& name : names_of_split(split))
    names += (names.empty() ? "" : " or ") + name + (extension.empty() ? ".tsv" : extension);
  throw DataError(concat_message(folder.string(), ": has no ", names, "; it holds ",
                                 names_in_folder(folder),
                                 extension.empty() ? "; .csv and .jsonl are read as well" : ""));
}

}  // namespace longhand::data
