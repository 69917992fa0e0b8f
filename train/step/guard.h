// Guard: detects steps whose update would harm the model, before the update is applied.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "longhand/core/schema.h"

namespace longhand::train {

/// Returns x for use in a message: a NaN without its sign, which is meaningless.
inline double unsigned_nan(double x) { return std::isnan(x) ? std::abs(x) : x; }

/// Running mean and variance of a number, dominated by the last `window` values: each new value has
/// weight 1 / window, or 1 / count while there are fewer.
struct Spread {
  int64_t count = 0;
  double mean = 0, variance = 0;

  void add(double x, int64_t window);
  /// Returns (x - mean) / deviation. The deviation is at least 0.001 |mean|, so that rounding
  /// errors of constant values are not outliers.
  double score(double x) const;

  friend bool operator==(const Spread&, const Spread&) = default;
};

/// The guard's part of a run's state. All zero if no step was skipped and there is no limit.
struct GuardState {
  int64_t skipped = 0;           // over the whole run
  int64_t skipped_in_turn = 0;   // consecutive steps, up to the last one
  int64_t skipped_interval = 0;  // since the last training record
  Spread loss, gradient_norm;

  friend bool operator==(const GuardState&, const GuardState&) = default;
};

/// Options of [train] for steps that are not finite or lie far outside their running spread.
struct GuardOptions {
  enum class Action { stop, skip };
  Action on_bad_step = Action::stop;
  int64_t max_skips = 10;    // consecutive; the next bad step stops
  double outlier_limit = 0;  // in standard deviations; 0: none
  int64_t outlier_window = 100;

  void describe(OptionVisitor& v);
};

/// Judges a step and counts it in `state`, as applied if it is good and as skipped if it is bad.
/// Returns the defect, such as "the loss is nan and the gradient norm nan" or "the gradient norm is
/// 31.2, 14.1 standard deviations above its mean 0.9"; empty if there is none.
std::string judge(const GuardOptions& options, GuardState& state, double loss,
                  double gradient_norm);

}  // namespace longhand::train
