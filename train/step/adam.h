// Adam and AdamW, for all or some of the parameters.
#pragma once

#include <functional>

#include "longhand/train/step/optimizers.h"

namespace longhand::train {

class Adam : public Optimizer {
 public:
  /// Throws as make_adam(). `has`: selects the parameters with moving averages; null: all.
  Adam(Parameters parameters, const AdamOptions& options,
       const std::function<bool(size_t parameter)>& has = nullptr);

 protected:
  void update(const Part& part, double lr, double scale) override;

 private:
  AdamOptions options_;
  size_t m_, v_;
};

}  // namespace longhand::train
