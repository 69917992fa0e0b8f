// Search: the option value with which each variant is trained, and the trials for choosing it.
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

/// A cell to be trained, initially up to a step; 0: to its end.
struct CellTask {
  const SweepCell* cell;
  int64_t until = 0;
};

/// The findings of a variant's search so far, which depend only on the evaluations of the trials,
/// not on the order in which they were run.
struct SearchState {
  struct Trial {
    bool needed = false;           // within the range as grown so far
    std::optional<int64_t> ended;  // ended at this step, in the worse half of the trials
    std::optional<double>
        metric;  // mean of the best validation metric of its cells, once they ended
  };
  std::vector<Trial> trials;  // none without a search
  std::vector<CellTask>
      tasks;  // what must be trained before it can continue; empty: the search is over
  /// The trial with the best metric among those that were not ended; ties go to the lower loss,
  /// then to the first. Trial 0 without a search; nothing during it, or if all trials failed.
  std::optional<size_t> best;
  /// The trials trained with all seeds: the best and those at most `around` away that did not fail;
  /// if one of these is better over all seeds, also those around it. Empty while there is no best.
  std::vector<size_t> finals;
  /// The trial reported for the variant: the best of `finals` over all seeds once they are trained;
  /// until then, and on ties, the best one of the search.
  std::optional<size_t> reported;
};

/// Returns a variant's search: the trials in the range are trained up to each of their rungs, where
/// the worse half ends (successive halving: Jamieson and Talwalkar 2016, arXiv 1502.07943), then to
/// the end. While the first or last trial is better than its neighbour, the range grows.
SearchState search_state(const Grid& grid, size_t variant, const CellStates& states);

/// Returns the searches of all variants.
std::vector<SearchState> search_states(const Grid& grid, const CellStates& states);

/// Returns whether a cell has ended, or is trained and evaluated up to this step; 0: its end.
bool has_reached(const CellState& state, int64_t until);

/// Returns how many values of a search reach 90 % of the best accuracy (of 1 / loss): the wider
/// this window, the less a variant depends on the value. Nothing before the search is over.
std::optional<int64_t> window_of(const Sweep& sweep, const SearchState& search);

/// Returns the runs that a sweep or one of its shards needs, each once, although two variants may
/// share a run, and a trial may be a final cell. While a variant has no best trial, final cells of
/// trials that have not failed stand in for the ones to be chosen.
CellRefs runs_of(const Grid& grid, const CellStates& states, const Shard& shard = {});

/// How many of these runs have ended, and how.
struct CellCounts {
  int64_t cells = 0;
  int64_t finished = 0;  // including trials that diverged or were ended, as in any search
  int64_t diverged = 0, failed = 0;  // or can never run, because all the variant's trials did
  int64_t damaged = 0;               // or undecided, because a trial is damaged

  int64_t left() const { return cells - finished - diverged - failed - damaged; }
};
/// Counts failed cells for which `is_open` holds as remaining, since they will be tried again.
CellCounts count_cells(const Grid& grid, const CellStates& states, const Shard& shard = {},
                       const std::function<bool(const SweepCell&)>& is_open = {});

}  // namespace longhand::train
