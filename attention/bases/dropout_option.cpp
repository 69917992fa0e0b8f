#include "longhand/attention/bases/dropout_option.h"

namespace longhand::attention {

double read_dropout(const Config& config) {
  const double p = config.options.get_double("dropout", 0, 0, 1);
  config.options.require(p < 1, "dropout", "less than 1 is wanted");
  return p;
}

void refuse_dropout(const Config& config, const std::string& name) {
  config.options.require(config.options.get_double("dropout", 0, 0, 1) == 0, "dropout",
                         name + " has no attention probabilities to drop");
}

}  // namespace longhand::attention
