// Sweep: the configurations that an ablation compares, from a TOML file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/train/config/config.h"

namespace longhand::train {

/// A value of an option, with its location in the sweep file.
struct Setting {
  std::string key;  // full name, such as "attention.k"
  OptionValue value;
  std::string where;
};
using Settings = std::vector<Setting>;

/// Holds if each of these options has one of these values.
using Condition = std::map<std::string, std::vector<OptionValue>>;

/// Options that change together, and their successive values.
struct Axis {
  std::string where;
  Condition when;  // the axis applies only where this holds
  std::vector<Settings> points;
};

/// A search for the best option values, separately for each variant, by the validation metric.
struct Search {
  Axis axis;           // including the values by which the range may grow
  int64_t seeds = 1;   // uses the first seeds of the sweep
  int64_t steps = 0;   // train.steps of the trials; 0: as in the final runs
  int64_t around = 0;  // values on either side of the best that also get all seeds
  int64_t extend = 0;  // extra values at each end, tried if their neighbour is best
  std::vector<double>
      halving{};  // fractions of the steps after which the worse half of the trials ends
};

/// The contents of a sweep file:
///
///     [sweep]
///     base = "../configs/mqar.toml"   # a configuration; or sections [model] … in this file
///     seeds = 3                       # 0, 1 and 2; or a list; default train.seed of the base
///     metric = "accuracy"             # or "loss"
///     baseline = { attention.type = "softmax" }
///     set = ["train.steps=500"]       # as with --set
///
///     [[axis]]
///     attention.type = ["softmax", "linformer"]
///
///     [[axis]]                        # an axis of some variants only
///     when = { attention.type = "linformer" }
///     attention.k = { from = 8, to = 32, factor = 2 }
///
///     [[axis]]                        # keys that change together
///     model.d_model = [64, 128]
///     model.heads = [1, 2]
///
///     [search]
///     optimizer.lr = { from = 3e-4, to = 3e-2, factor = 3.162 }
///     around = 1                      # all seeds also at one value on either side of the best
///     extend = 2                      # up to two more values beyond an end that is the best
///     halving = [0.25]                # the worse half of the trials ends after 1/4 of the steps
///
/// Values are a list, a range {from, to} with `factor`, `step` or `count`, or samples:
/// {log_uniform}, {uniform} or {choice}, with a count and a seed (in their table, or in [[axis]]
/// for several keys that are sampled together).
struct Sweep {
  std::string title;
  std::string name;              // of the file in errors
  std::string base, base_name;   // the text of the base configuration, and its name in errors
  std::vector<std::string> set;  // assignments to the base
  std::vector<int64_t> seeds;    // values of train.seed; by default that of the base
  std::string metric = "accuracy";
  Condition baseline;  // selects the variants to compare with; empty: none
  std::vector<Axis> axes;
  std::optional<Search> search;

  /// Reads a file; its base is relative to its folder, and so are values of train.init_from and
  /// train.distill_from that exist there, others to the current directory; they become absolute.
  /// Appends `set` to the file's. Throws ConfigError, naming file, line and column.
  static Sweep load(const std::filesystem::path& path, const std::vector<std::string>& set = {});
  /// Parses TOML text; `name` is its name in errors, and `folder` the folder of the base.
  static Sweep parse(std::string_view text, const std::string& name,
                     const std::filesystem::path& folder = {},
                     const std::vector<std::string>& set = {});

  /// Reads axes, seeds and metric from TOML text, for a given base. Without seeds in the text there
  /// are none. Throws ConfigError for a base, option sections or [search] in the text.
  static Sweep over(std::string_view text, const std::string& name, std::string base,
                    std::string base_name);

  /// Returns the base configuration with the assignments.
  Config config() const;
  /// Returns a self-contained sweep file: with the options of the base, and with lists in place of
  /// ranges and samples.
  std::string to_toml() const;
};

/// Returns the sweep files that `file` lists as `parts`, relative to its folder:
///
///     [sweep]
///     parts = ["recall.toml", "copy.toml"]
///
/// Empty if it is a sweep itself. Throws ConfigError if it contains anything else, or if parts are
/// missing, have parts themselves, or have the same name in different folders.
std::vector<std::filesystem::path> parts_of(const std::filesystem::path& file);

/// Returns whether two values are equal, even if one is an integer and the other floating-point.
bool same_value(const OptionValue& a, const OptionValue& b);
/// Returns whether an option is the path of another run.
bool is_run_path(const std::string& key);
/// Returns options as TOML, under their section headings.
std::string toml_of_options(const std::map<std::string, std::string>& options);
/// Returns a value as shown in labels: text without quotes.
std::string plain_text(const OptionValue& value);

}  // namespace longhand::train
