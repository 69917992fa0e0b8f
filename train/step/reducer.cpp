#include "longhand/train/step/reducer.h"

#include "longhand/train/step/metrics.h"

namespace longhand::train {

Metrics Reducer::sum_of(const std::vector<Metrics>& batches) const {
  Metrics total;
  for (const Metrics& batch : batches) total += batch;
  return total;
}

const Reducer& one_process() {
  static const Reducer alone;
  return alone;
}

}  // namespace longhand::train
