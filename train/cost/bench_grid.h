// The cells that longhand bench measures: variants and lengths, with the configuration of each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/config/config.h"

namespace longhand::train {

struct BenchGrid {
  std::string model = "L";
  std::vector<std::string> attention;  // empty: all that support the other members
  std::vector<int64_t> length;         // empty: those of the model
  std::optional<int64_t> d_model, heads, layers, d_mlp;
  std::optional<double> dropout;
  bool causal = false;
  std::vector<std::string> set{};  // section.key=value, which override the others
};

struct BenchCell {
  std::string attention;  // a variant, or one for each layer: "window+linear"
  int64_t length;
};

/// Throws ConfigError for unknown variants and models.
std::vector<BenchCell> cells_of(const BenchGrid& grid);

/// The configuration of a cell, without the options that only other variants declare.
Config config_of(const BenchGrid& grid, const BenchCell& cell);

/// The assignments for each variant: BenchGrid::set and the model, without options that only other
/// variants declare. Throws ConfigError for options that no variant declares, and for invalid values.
std::map<std::string, std::vector<std::string>> assignments(const BenchGrid& grid,
                                                            const std::vector<BenchCell>& cells);

/// The configuration of a cell, from the assignments() for its variant.
Config config_with(const BenchCell& cell, const std::vector<std::string>& set);

/// The dropout of attention probabilities, the largest of all layers.
double attention_dropout(const Config& config);

}  // namespace longhand::train
