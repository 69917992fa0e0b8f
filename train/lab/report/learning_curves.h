// Learning curves: the figures of loss and accuracy against steps and seconds.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "longhand/train/lab/report/charts.h"

namespace longhand::train {

/// A figure of the loss and one of the accuracy for each task and ten variants, whose `families` have the colours; and
/// a number of steps: a curve shows the last record in each so many, so that all curves fit into a page.
std::pair<std::vector<Figure>, int64_t> learning_curves(const ReportInputs& inputs,
                                                        const Board& board,
                                                        const ChartContext& context,
                                                        const std::vector<std::string>& families);

}  // namespace longhand::train
