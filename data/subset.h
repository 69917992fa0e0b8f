// The first examples of a dataset, as a dataset.
#pragma once

#include <memory>

#include "longhand/data/dataset.h"

namespace longhand::data {

/// Examples 0 … count-1 of a dataset, or all if it has fewer.
std::unique_ptr<Dataset> first_examples(std::unique_ptr<Dataset> dataset, int64_t count);

}  // namespace longhand::data
