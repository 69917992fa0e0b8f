// Masked tokens as targets: pretraining on the inputs of any task.
#pragma once

#include <cstdint>

#include "longhand/data/dataset.h"

namespace longhand::data {

/// What a model that predicts masked tokens needs, for the inputs of a task: the mask is one token more, and
/// all others are classes.
TaskInfo masked(const TaskInfo& info);

/// The examples of a task with each token replaced by the mask with probability `fraction`, 0 < fraction < 1,
/// and one at least. The replaced tokens are the only targets (Devlin et al. 2019, arXiv 1810.04805, 3.1, without
/// random and kept ones; on the inputs of the task itself: Amos et al. 2023, arXiv 2310.02980). Which ones
/// depends on (seed, split, index) alone.
Task masked(Task task, double fraction, uint64_t seed);

}  // namespace longhand::data
