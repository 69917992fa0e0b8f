// Learning curves: the figures of loss and accuracy against steps and seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhand/train/lab/report/charts.h"

namespace longhand::train {

/// A figure of the loss and one of the accuracy for each task and ten variants, whose `families` have the colours. Each
/// curve shows the last record of so many `steps`, so that all of them fit into a page.
std::vector<Figure> learning_curves(const ReportInputs& inputs, const Board& board,
                                    const ChartContext& context,
                                    const std::vector<std::string>& families, int64_t& steps);

}  // namespace longhand::train
