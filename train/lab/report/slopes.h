// Slopes: what a chart with two logarithmic axes shows, in numbers.
#pragma once

#include <string>
#include <vector>

#include "longhand/train/results/table.h"

namespace longhand::train {

/// For a chart with two logarithmic axes: the exponent of a power law fitted to each curve of at least
/// three points, and from where on curves stay below that of softmax attention. Returns sentences; none for other
/// charts.
std::vector<std::string> slopes(const Table& table, const Chart& chart);

}  // namespace longhand::train
