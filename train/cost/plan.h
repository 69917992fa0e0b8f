// Plans: the best split for each length and number of ranks, with tables that show it.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/train/config/config.h"
#include "longhand/train/cost/forecast.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// Returns the configuration of the model only, for sequences of this length.
Config model_config(const Config& config, const attention::TransformerConfig& model,
                    int64_t length);

struct PlanOptions {
  std::vector<int64_t> ranks;  // numbers of ranks
  bool here = false;           // all on this machine, sharing its cores and memory
};

/// Forecasts every split of each number of ranks for each model, chooses one, and returns the
/// tables "choices" and "forecasts".
Results plan(const ForecastRequest& request,
             const std::vector<attention::TransformerConfig>& models, const PlanOptions& options);

}  // namespace longhand::train
