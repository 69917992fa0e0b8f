#include "longhand/train/lab/manifest.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>

#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/lab/cell.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 5> result_files = {"config.toml", "metrics.jsonl", "summary.json",
                                                     "test.json", "cell.json"};

constexpr const char* best_file = "checkpoints/best.h5";

/// Start of the comment of with_digest().
constexpr std::string_view comment = "# digest of the rest; remove this line if you change it: ";

FileDigests digests_of(const fs::path& cell) {
  FileDigests out;
  for (const char* const name : result_files)
    if (fs::is_regular_file(cell / name))
      out[name] = data::text_digest(data::read_text_file(cell / name));
  try {
    if (fs::exists(cell / best_file)) out[best_file] = stored_digest(cell / best_file);
  } catch (const DataError&) {  // not a checkpoint, which --verify reports
  }
  return out;
}

/// The exclusive right to change the manifest, held only for the time of one write.
std::unique_ptr<Claim> lock(const fs::path& sweep) {
  for (const double begin = clock_seconds(); clock_seconds() - begin < 60;) {
    if (auto claim = Claim::take(sweep, "manifest-lock")) return claim;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw DataError((sweep / "manifest-lock").string() +
                  ": another process has kept the manifest locked for 60 s; has it been stopped?");
}

void write_manifest(const fs::path& sweep, const Manifest& manifest) {
  std::string text;
  for (const auto& [hash, files] : manifest.cells) {
    std::string line = hash;
    for (const auto& [name, digest] : files) line += " " + name + " " + digest;
    text += data::text_digest(line) + " " + line + "\n";
  }
  data::write_file_durably(sweep / "manifest", text);
}

}  // namespace

Manifest read_manifest(const fs::path& sweep) {
  const fs::path path = sweep / "manifest";
  Manifest out;
  if (!fs::exists(path)) return out;
  std::istringstream lines(data::read_text_file(path));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t space = line.find(' ');
    // The newline is part of the last line.
    if (lines.eof() || space == std::string::npos ||
        data::text_digest(line.substr(space + 1)) != line.substr(0, space)) {
      out.damage.push_back(concat_message(
          path.string(), ":", number,
          ": the line is damaged; damage of the cell that it described would not be noticed until "
          "longhand ablate records the cell again"));
      continue;
    }
    std::istringstream words(line.substr(space + 1));
    std::string hash, name, digest;
    words >> hash;
    FileDigests& files = out.cells[hash];
    while (words >> name >> digest) files[name] = digest;
  }
  return out;
}

void record_cells(const fs::path& sweep, const std::vector<std::string>& hashes) {
  const auto claim = lock(sweep);
  Manifest manifest = read_manifest(sweep);
  for (const std::string& hash : hashes) manifest.cells[hash] = digests_of(sweep / "cells" / hash);
  write_manifest(sweep, manifest);
}

void forget_cell(const fs::path& sweep, const std::string& hash) {
  const auto claim = lock(sweep);
  Manifest manifest = read_manifest(sweep);
  if (manifest.cells.erase(hash) > 0) write_manifest(sweep, manifest);
}

std::string damage_of(const fs::path& cell, const FileDigests& recorded) try {
  if (recorded.empty()) return "";
  for (const char* const name : result_files) {
    const bool is_there = fs::exists(cell / name);
    const auto found = recorded.find(name);
    if (found == recorded.end()) {
      if (is_there) return std::string(name) + " was not there when the cell ended";
    } else if (!is_there) {
      return std::string(name) + " is missing";
    } else if (data::text_digest(data::read_text_file(cell / name)) != found->second) {
      return std::string(name) + " is damaged: it has changed since the cell ended";
    }
  }
  return "";
} catch (const DataError& error) {  // not a regular file, or it cannot be read
  return error.what();
}

std::string Manifest::damage_of(const fs::path& cell) const {
  return train::damage_of(cell, of(cell.filename().string()));
}

std::string damage_of_checkpoint(const fs::path& cell, const FileDigests& recorded) {
  try {
    load(cell / best_file);
    const auto found = recorded.find(best_file);
    return found == recorded.end() || stored_digest(cell / best_file) == found->second
               ? ""
               : "best.h5 is not the checkpoint of this cell";
  } catch (const DataError& error) {
    return error.what();
  }
}

std::string repair_remedy(const fs::path& sweep) {
  return "; repair the cell with longhand ablate " + sweep.string() + " --repair";
}

std::string with_digest(const std::string& toml) {
  return std::string(comment) + data::text_digest(toml) + "\n" + toml;
}

void check_digest(const fs::path& file) {
  const std::string text = data::read_text_file(file);
  if (!text.starts_with(comment)) return;
  const size_t end = std::min(text.find('\n'), text.size() - 1);
  check<DataError>(with_digest(text.substr(end + 1)) == text, file.string(),
                   ": damaged, or changed without removing its first line; repeat longhand ablate "
                   "with the original file, which writes this one again");
}

}  // namespace longhand::train
