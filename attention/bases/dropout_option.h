// The option "dropout": dropping attention probabilities, where a variant has any.
#pragma once

#include <string>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// Reads it, 0 <= p < 1, default 0. Throws ConfigError otherwise.
double read_dropout(const Config& config);

/// For variants that form no probabilities. Throws ConfigError if it is set above 0: silence would
/// leave a model with less dropout than its configuration says.
void refuse_dropout(const Config& config, const std::string& name);

}  // namespace longhand::attention
