// Guard: finds steps whose update would harm the model, before it is applied.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "longhand/core/schema.h"

namespace longhand::train {

/// A number for a message: a NaN without its sign, which says nothing.
inline double unsigned_nan(double x) { return std::isnan(x) ? std::abs(x) : x; }

/// The running mean and variance of a number. The last `window` numbers have most of the weight: each
/// new one has the weight 1 / window, or 1 / count as long as there are fewer.
struct Spread {
  int64_t count = 0;
  double mean = 0, variance = 0;

  void add(double x, int64_t window);
  /// (x - mean) / deviation. A deviation below 0.001 |mean| counts as that, so that rounding of
  /// constant numbers is not an outlier.
  double score(double x) const;

  friend bool operator==(const Spread&, const Spread&) = default;
};

/// The part of a run's state that judges steps. All zero if no step was skipped and there is no limit.
struct GuardState {
  int64_t skipped = 0;           // steps of the run
  int64_t skipped_in_turn = 0;   // the last steps
  int64_t skipped_interval = 0;  // steps since the last training record
  Spread loss, gradient_norm;

  friend bool operator==(const GuardState&, const GuardState&) = default;
};

/// The options of [train] about steps that are not finite, or far outside of their running spread.
struct GuardOptions {
  enum class Action { stop, skip };
  Action on_bad_step = Action::stop;
  int64_t max_skips = 10;    // consecutive; the next bad step stops
  double outlier_limit = 0;  // in standard deviations; 0: none
  int64_t outlier_window = 100;

  void describe(OptionVisitor& v);
};

/// Judges a step and counts it in `state`, as applied if it is good and as skipped if it is bad. Returns
/// what is wrong with it: "the loss is nan and the gradient norm nan", "the gradient norm is 31.2, 14.1
/// standard deviations above its mean 0.9"; empty if nothing is.
std::string judge(const GuardOptions& options, GuardState& state, double loss,
                  double gradient_norm);

}  // namespace longhand::train
