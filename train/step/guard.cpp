#include "longhand/train/step/guard.h"

#include <algorithm>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

/// Returns why x is an outlier; empty if it is not.
std::string outlier(const char* name, double x, const Spread& spread, const GuardOptions& options) {
  if (options.outlier_limit == 0 || spread.count < options.outlier_window) return {};
  const double score = spread.score(x);
  if (score <= options.outlier_limit) return {};
  return concat_message(name, " is ", x, ", ", score, " standard deviations above its mean ",
                        spread.mean, ", more than train.outlier_limit = ", options.outlier_limit);
}

}  // namespace

void Spread::add(double x, int64_t window) {
  ++count;
  const double weight = 1 / static_cast<double>(std::min(count, window));
  const double difference = x - mean;
  mean += weight * difference;
  variance = (1 - weight) * (variance + weight * difference * difference);
}

double Spread::score(double x) const {
  const double deviation = std::max(std::sqrt(variance), 1e-3 * std::abs(mean));
  return deviation > 0 ? (x - mean) / deviation : 0;
}

std::string judge(const GuardOptions& options, GuardState& state, double loss,
                  double gradient_norm) {
  std::string wrong = std::isfinite(loss) && std::isfinite(gradient_norm)
                          ? outlier("the loss", loss, state.loss, options)
                          : concat_message("the loss is ", unsigned_nan(loss),
                                           " and the gradient norm ", unsigned_nan(gradient_norm));
  if (wrong.empty())
    wrong = outlier("the gradient norm", gradient_norm, state.gradient_norm, options);
  if (!wrong.empty()) {
    ++state.skipped;
    ++state.skipped_in_turn;
    ++state.skipped_interval;
    return wrong;
  }
  state.skipped_in_turn = 0;
  if (options.outlier_limit == 0) return {};
  state.loss.add(loss, options.outlier_window);
  state.gradient_norm.add(gradient_norm, options.outlier_window);
  return {};
}

}  // namespace longhand::train
