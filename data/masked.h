// Masked tokens as targets: pretraining on the inputs of any task.
#pragma once

#include <cstdint>

#include "longhand/data/dataset.h"

namespace longhand::data {

/// The TaskInfo for predicting masked tokens of the inputs of a task: the mask is an additional
/// token, and all other tokens are classes.
TaskInfo masked(const TaskInfo& info);

/// The examples of a task with each token masked with probability `fraction` in (0, 1), and at
/// least one in each. The masked tokens are the only targets (Devlin et al. 2019, arXiv 1810.04805,
/// 3.1, without random and kept tokens; on the inputs of the task itself: Amos et al. 2023, arXiv
/// 2310.02980). The choice depends on (seed, split, index) alone.
Task masked(Task task, double fraction, uint64_t seed);

}  // namespace longhand::data
