// The cells that longhand bench measures: variants and lengths, and each cell's configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/config/config.h"

namespace longhand::train {

struct BenchGrid {
  std::string model = "L";
  std::vector<std::string> attention;  // empty: all that support the other options
  std::vector<int64_t> length;         // empty: the model's
  std::optional<int64_t> d_model, heads, layers, d_mlp;
  std::optional<double> dropout;
  bool causal = false;
  std::vector<std::string> set{};  // section.key=value, overriding the others
};

struct BenchCell {
  std::string attention;  // a variant, or one for each layer: "window+linear"
  int64_t length;
};

/// Throws ConfigError for unknown variants and models, and for options that no variant declares.
std::vector<BenchCell> cells_of(const BenchGrid& grid);

/// Returns the configuration of a cell, without options that only other variants declare. Throws
/// ConfigError for invalid values.
Config config_of(const BenchGrid& grid, const BenchCell& cell);

/// Returns assignments for all options of a configuration except the variant and the length.
std::vector<std::string> assignments(const Config& config);

/// Returns the largest dropout of attention probabilities of all layers.
double attention_dropout(const Config& config);

}  // namespace longhand::train
