#include "longhand/attention/memory.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/ops/scan.h"
#include "longhand/attention/variant.h"

namespace longhand::attention {

MemorySizes::MemorySizes(const Config& config, const Extent& e)
    : H(static_cast<double>(config.heads)),
      D(static_cast<double>(config.head_dim)),
      tokens(e.batch * e.queries * H),
      values(tokens * D),
      keys(e.batch * e.keys * H * D),
      pairs(tokens * e.keys) {}

double kept_scan_states(const Config& config, const Extent& e, double m) {
  if (!e.training) return 0;
  const MemorySizes z(config, e);
  return e.batch * z.H * m * (z.D + 1) * std::ceil(e.queries / (4 * scan_block));
}

// Over all keys: the sums S and z, one normaliser and one maximum per query, and their gradients.
// Causally: the sums of each query with their normaliser, and states. The gradients of features are
// as large as the features, which are freed as soon as theirs are known.
Memory feature_memory(const Config& config, const Extent& e, double m, double kept_features,
                      double written) {
  const MemorySizes z(config, e);
  Memory out{.kept = kept_features, .forward = written};
  if (config.causal) {
    out.kept += z.values + z.tokens + kept_scan_states(config, e, m);
    out.backward = std::max(written - 3 * z.values, -z.values);
    return out;
  }
  const double sums = e.batch * z.H * m * (z.D + 1);
  out.kept += sums + 2 * z.tokens;
  out.backward = sums + std::max(written - 1.5 * z.values, 0.0);
  return out;
}

}  // namespace longhand::attention
