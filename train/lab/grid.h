// Grid: the cells of a sweep, each a run with its effective configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"

namespace longhand::train {

/// One run of a sweep; it is trained and, if `final`, also evaluated on the test split.
struct SweepCell {
  size_t variant = 0, trial = 0, nth_seed = 0;  // indices in the grid
  bool final = false;
  int64_t seed = 0;
  std::string hash;              // of config, without newer options: the directory's name
  std::string config;            // the effective configuration, as TOML
  std::vector<int64_t> rungs{};  // of a trial: steps at which the worse half ends
};

using CellRefs = std::vector<std::reference_wrapper<const SweepCell>>;

/// A combination of axis values, trained with every seed.
struct SweepVariant {
  std::string label;  // "linformer k=16"
  Settings values;    // of the axes that apply
  /// The index of the variant it is compared with; nothing for a baseline itself, or without one.
  std::optional<size_t> baseline{};
};

/// All runs of a sweep. Cells with the same hash are the same run.
struct Grid {
  Sweep sweep;
  std::vector<SweepVariant> variants;
  /// Cells of searches, then the final ones of every trial; each by variant, trial and seed.
  std::vector<SweepCell> cells;
  std::vector<std::string> keys;    // of all axes
  std::vector<std::string> trials;  // labels of the values of the search; empty: no search
  std::string search_key;           // "optimizer.lr"; several joined with commas
  size_t seeds = 0, search_seeds = 0;

  /// Returns a variant's search cells, in all trials or in one; none without a search.
  std::span<const SweepCell> searches(size_t variant) const;
  std::span<const SweepCell> searches(size_t variant, size_t trial) const;
  /// Returns a variant's final cells in one trial; without a search there is only trial 0.
  std::span<const SweepCell> finals(size_t variant, size_t trial = 0) const;
};

/// Expands the axes in order: an axis applies to those combinations of the previous axes for which
/// its condition holds. Checks every configuration as Experiment does, without making data or
/// model. Throws ConfigError, naming the variant and the location, for the first invalid one, for
/// conditions on options that have no value yet or are decided later, for axes that apply to no
/// cell, and for a missing or ambiguous baseline.
Grid expand(const Sweep& sweep);

/// Returns why a sweep is different from `before` rather than a change to it: its title, metric,
/// task or a data option differs. "its metric is "loss" instead of "accuracy""; empty if none does.
/// Throws ConfigError if either is invalid.
std::string difference_of(const Sweep& sweep, const Sweep& before);

/// One of several parts of a grid, for several machines.
struct Shard {
  int64_t index = 0, count = 1;
};
/// Returns, by variant and seed, whether the cell belongs to a shard: every count-th cell, ordered
/// by seed and then variant. A cell shared by two variants is the first one's. With a search: every
/// count-th variant with all its trials, because its final cells depend on all of them.
std::vector<std::vector<bool>> cells_of_shard(const Grid& grid, const Shard& shard);

/// Assigns values to the options of a configuration.
void assign(Config& config, const Settings& values);

}  // namespace longhand::train
