// Search: the value of an option that each variant is trained with, and the trials that choosing it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/sweep.h"

namespace longhand::train {

/// A cell that is to be trained, at first up to a step; 0: to its end.
struct CellTask {
  const SweepCell* cell;
  int64_t until = 0;
};

/// What the search of a variant has found so far. It follows from the evaluations of the trials alone, not
/// from the order in which they were run.
struct SearchState {
  struct Trial {
    bool needed = false;           // within the range, as far as it has grown
    std::optional<int64_t> ended;  // after this step, in the worse half of the trials
    std::optional<double>
        metric;  // mean of the best validation metric of its cells, once they ended
  };
  std::vector<Trial> trials;  // none without a search
  std::vector<CellTask>
      tasks;  // what must be trained before it can go on; empty: the search is over
  /// Of the trials that were not ended, the one with the best metric; of equal ones the one with the lower
  /// loss, and the first. Trial 0 without a search; nothing during it, or if all trials failed.
  std::optional<size_t> best;
  /// The trials that are trained with all seeds: the best one, and those at most `around` away from it that did
  /// not fail; if one of these is better over all seeds, also those around it. None before there is a best one.
  std::vector<size_t> finals;
  /// The trial that the variant is reported with: the best of `finals` over all seeds, once they all have
  /// been trained; until then, and of equal ones, the best one of the search.
  std::optional<size_t> reported;
};

/// The search of a variant: the trials of the range are trained up to each of their rungs, after which the
/// worse half of them ends (successive halving: Jamieson and Talwalkar 2016, arXiv 1502.07943), and
/// then to the end. While the first or the last one is better than the one beside it, the range grows.
SearchState search_state(const Grid& grid, size_t variant, const CellStates& states);

/// Those of all variants.
std::vector<SearchState> search_states(const Grid& grid, const CellStates& states);

/// Whether a cell has ended, or is trained and evaluated up to this step; 0: its end.
bool has_reached(const CellState& state, int64_t until);

/// How many of the values of a search reach 90 % of the best accuracy (of 1 / loss): the wider this window,
/// the less a variant depends on the value. Nothing before the search is over.
std::optional<int64_t> window_of(const Sweep& sweep, const SearchState& search);

/// The runs of a sweep that are needed, or of one of its shards: each once, though two variants may have
/// the same one, and a trial may be a final cell. While a variant has no best trial, final cells of
/// trials that have not failed stand for those that will be chosen.
CellRefs runs_of(const Grid& grid, const CellStates& states, const Shard& shard = {});

/// How many of these runs have ended, and how.
struct CellCounts {
  int64_t cells = 0;
  int64_t finished = 0;  // also trials that diverged or were ended, which is what a search is for
  int64_t diverged = 0, failed = 0;  // or can never be run, because all trials of the variant did
  int64_t damaged = 0;               // or undecided, because a trial is

  int64_t left() const { return cells - finished - diverged - failed - damaged; }
};
/// Cells that failed, and of which `is_open` holds, will be tried again: they are left.
CellCounts count_cells(const Grid& grid, const CellStates& states, const Shard& shard = {},
                       const std::function<bool(const SweepCell&)>& is_open = {});

}  // namespace longhand::train
