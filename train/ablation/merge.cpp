#include "longhand/train/ablation/merge.h"

#include <unistd.h>

#include <system_error>

#include "longhand/core/error.h"
#include "longhand/train/ablation/cell.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// Whether nothing is left to be done for a cell. Trials of a search need no test.
bool has_ended(const CellState& state) {
  const bool is_trial = state.record.phase == "search";
  return state.status == CellStatus::finished || state.status == CellStatus::diverged ||
         (is_trial && state.status == CellStatus::trained);
}

/// Replaces the directory `to`, which this process has claimed, by a copy of `from`.
void copy_cell(const fs::path& from, const fs::path& to) {
  const fs::path part =
      to.parent_path() / concat_message(".", to.filename().string(), ".", getpid());
  std::error_code error;
  fs::remove_all(part, error);
  fs::copy(from, part, fs::copy_options::recursive, error);
  if (!error) fs::remove_all(to, error);
  if (!error) fs::rename(part, to, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove_all(part, ignored);
  throw DataError(
      concat_message("cannot copy ", from.string(), " to ", to.string(), ": ", error.message()));
}

}  // namespace

int64_t merge_cells(const Grid& grid, const fs::path& from, const fs::path& to) {
  check<ConfigError>(fs::exists(from / "sweep.toml"), from.string(),
                     " holds no sweep: no sweep.toml");
  const CellStates theirs = read_cells(grid, from), ours = read_cells(grid, to);
  int64_t copied = 0;
  for (const auto& [hash, state] : theirs) {
    if (!has_ended(state) || has_ended(ours.at(hash))) continue;
    const fs::path directory = to / "cells" / hash;
    if (const auto claim = Claim::take(directory)) {  // else another process runs it
      copy_cell(from / "cells" / hash, directory);
      ++copied;
    }
  }
  return copied;
}

}  // namespace longhand::train
