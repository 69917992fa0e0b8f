#include "longhand/train/lab/merge.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/lab/cell.h"
#include "longhand/train/results/json.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// Returns the files and folders in a cell's folder, that folder first, without temporary ones.
/// Throws DataError for anything else: a link could name any file of this machine.
std::vector<fs::path> contents_of(const fs::path& cell) {
  const auto checked = [](const fs::path& path) {
    const fs::file_status status = fs::symlink_status(path);
    check<DataError>(fs::is_regular_file(status) || fs::is_directory(status), path.string(),
                     fs::is_symlink(status) ? ": a symbolic link" : ": a special file",
                     ", which is not copied; replace it by the file or folder that the cell needs");
    return path;
  };
  checked(cell.parent_path());
  std::vector<fs::path> out = {checked(cell)};
  for (fs::recursive_directory_iterator entry(cell), end; entry != end; ++entry) {
    if (!entry->path().filename().string().starts_with('.'))
      out.push_back(checked(entry->path()));
    else
      entry.disable_recursion_pending();
  }
  return out;
}

/// The results of a cell that has ended, with nothing left to do.
struct CellResults {
  std::string source;  // directory and machine
  bool is_whole;  // not a trial that ended in the worse half, which another sweep may train further
  /// Its status, its score (empty if not tested), and its metrics, each with its location, without
  /// time and memory.
  std::vector<std::string> lines{};
};

/// Returns nothing if the cell has not ended. Throws DataError if it is damaged.
std::optional<CellResults> results_of(const fs::path& folder) {
  const CellState state = read_cell(folder);
  check<DataError>(state.status != CellStatus::damaged, folder.string(), ": ", state.record.reason);
  const bool is_trial = state.record.phase == "search";  // needs no test
  if (is_trial && state.status == CellStatus::halved) return CellResults{folder.string(), false};
  if (state.status != CellStatus::finished && state.status != CellStatus::diverged &&
      !(is_trial && state.status == CellStatus::trained))
    return std::nullopt;
  CellResults out{concat_message(folder.string(), " (", state.summary->machine, ")"),
                  true,
                  {"status: " + state.summary->status}};
  const auto add = [&](const std::string& place, const std::string& text) {
    Json json = parse_json(text);
    for (const char* const key : {"seconds", "tokens_per_second", "peak_memory_bytes", "command",
                                  "machine", "date", "version", "checkpoint"})
      json.erase(key);
    out.lines.push_back(place + ": " + dump(json));
  };
  if (state.test)
    add("test.json", data::read_text_file(folder / "test.json"));
  else
    out.lines.emplace_back();
  const fs::path records = folder / "metrics.jsonl";  // none if it diverged before the first
  int64_t line = 0;
  for (const std::string& text :
       split_at(fs::exists(records) ? data::read_text_file(records) : "", '\n'))
    add(concat_message("metrics.jsonl:", ++line), text);
  return out;
}

/// Machines of the same kind give bitwise identical results.
void check_equal(const CellResults& a, const CellResults& b) {
  const auto line = [](const CellResults& cell, size_t i) {
    return i < cell.lines.size() ? cell.lines[i] : "nothing";
  };
  for (size_t i = 0; i < std::max(a.lines.size(), b.lines.size()); ++i) {
    const std::string x = line(a, i), y = line(b, i);
    check<DataError>(x == y || x.empty() || y.empty(), a.source, " and ", b.source,
                     " are the same cell with different results: ", x, " and ", y,
                     "; nothing was merged. Remove the directory with the wrong ones");
  }
}

/// Atomically replaces the directory `to`, which this process has claimed, by a copy of `from`.
void copy_cell(const fs::path& from, const fs::path& to) {
  const fs::path part =
      to.parent_path() / concat_message(".tmp-", getpid(), "-", to.filename().string());
  std::error_code ignored;
  try {
    fs::remove_all(part);
    std::vector<fs::path> copies;
    for (const fs::path& path : contents_of(from)) {
      copies.push_back(path == from ? part : part / path.lexically_relative(from));
      if (fs::is_directory(path))
        fs::create_directory(copies.back());
      else
        fs::copy_file(path, copies.back());
    }
    for (const fs::path& copy : copies) data::sync_file(copy);
    if (renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
      fs::remove_all(to);  // if the file system cannot exchange two directories
      fs::rename(part, to);
    }
    data::sync_file(to);
  } catch (const std::exception& error) {
    fs::remove_all(part, ignored);
    throw DataError(
        concat_message("cannot copy ", from.string(), " to ", to.string(), ": ", error.what()));
  }
  fs::remove_all(part, ignored);  // the previous contents
}

}  // namespace

void check_holds_sweep(const fs::path& directory) {
  check<ConfigError>(fs::exists(directory / "sweep.toml"), directory.string(),
                     " holds no sweep: no sweep.toml");
}

std::vector<Merged> merge_cells(const Grid& grid, const std::vector<fs::path>& from,
                                const fs::path& to) {
  std::vector<Merged> out(from.size());
  // The first directory with the cell, as an index (from.size(): `to`), and its results.
  std::map<std::string, std::pair<size_t, CellResults>> first;
  const auto add = [&](const std::string& hash, size_t i, const CellResults& cell) {
    const auto [found, is_new] = first.try_emplace(hash, i, cell);
    if (is_new || !cell.is_whole) return;
    if (found->second.second.is_whole)
      check_equal(found->second.second, cell);
    else
      found->second = {i, cell};
  };
  const CellStates cells = read_cells(grid, to);
  for (const auto& [hash, state] : cells)
    if (state.status != CellStatus::damaged)
      if (const auto ours = results_of(to / "cells" / hash)) add(hash, from.size(), *ours);
  for (size_t i = 0; i < from.size(); ++i) {
    check_holds_sweep(from[i]);
    for (const auto& [hash, state] : cells) {
      const fs::path folder = from[i] / "cells" / hash;
      if (!fs::exists(fs::symlink_status(folder))) continue;
      contents_of(folder);  // throws for links
      std::optional<CellResults> theirs;
      try {
        theirs = results_of(folder);
      } catch (const DataError& error) {
        out[i].damaged.emplace_back(error.what());
      }
      if (theirs) add(hash, i, *theirs);
    }
  }
  for (const auto& [hash, cell] : first) {
    const fs::path directory = to / "cells" / hash;
    const size_t i = cell.first;
    if (i == from.size()) continue;
    if (const auto claim = Claim::take(directory)) {  // else another process runs it
      forget_cell(to, hash);
      copy_cell(from[i] / "cells" / hash, directory);
      record_cells(to, {hash});
      ++out[i].copied;
    }
  }
  return out;
}

}  // namespace longhand::train
