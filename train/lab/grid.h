// Grid: the cells of a sweep, each a run with its effective configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"

namespace longhand::train {

/// One run of a sweep.
struct SweepCell {
  std::string hash;    // of config: 16 hexadecimal digits, the name of its directory
  std::string config;  // the effective configuration, as TOML
  int64_t seed = 0;
};

/// A combination of values of the axes, which is trained with every seed.
struct SweepVariant {
  std::string label;  // "linformer k=16"
  Settings values;    // of the axes that apply
  /// The index of the variant that it is compared with; nothing for a baseline itself, and where
  /// there is none.
  std::optional<size_t> baseline{};
  /// By trial of the search (one if there is no search), then by seed.
  std::vector<std::vector<SweepCell>> final{};
  /// By trial, then by seed; empty if there is no search.
  std::vector<std::vector<SweepCell>> search{};
};

/// All runs of a sweep. Cells with the same hash are the same run.
struct Grid {
  std::vector<SweepVariant> variants;
  std::vector<std::string> keys;    // of all axes
  std::vector<std::string> trials;  // labels of the values of the search; empty: no search
  std::string search_key;           // "optimizer.lr"; several joined with commas
};

/// A cell, which is trained or, if `final`, also evaluated on the test split, and its place in the grid.
struct GridCell {
  size_t variant, trial, seed;  // indices
  bool final;
  const SweepCell* cell;
};
/// The cells of searches, then the final cells of every trial; each by variant, trial and seed. Several of
/// them may be the same run.
std::vector<GridCell> cells_of(const Grid& grid);

/// Expands the axes, in their order: an axis applies to the combinations of those before it for which
/// its condition holds. Checks every configuration as Experiment does, without making data or model.
/// Throws ConfigError, naming the variant and the location, for the first one that is invalid, for
/// conditions on options that have no value yet, and for a baseline that is missing or ambiguous.
Grid expand(const Sweep& sweep);

/// One of several parts of a grid, for several machines.
struct Shard {
  int64_t index = 0, count = 1;
};
/// By variant and seed, whether the cell belongs to a shard: every count-th cell, in the order of seeds
/// and then variants; if two variants have the same cell, it is that of the first. With a search, every
/// count-th variant with all its trials, because its final cells depend on all of them.
std::vector<std::vector<bool>> cells_of_shard(const Grid& grid, const Shard& shard);

/// Assigns values to the options of a configuration.
void assign(Config& config, const Settings& values);

/// The label of values: "linformer k=16". Keys whose last word is not unique in `keys` are written
/// out.
std::string label_of(const Settings& values, const std::vector<std::string>& keys);

}  // namespace longhand::train
