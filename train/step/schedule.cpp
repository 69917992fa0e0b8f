#include "longhand/train/step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace longhand::train {
namespace {

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

double one_cycle(double lr, int64_t t, int64_t w, int64_t T) {
  const double start = lr / 25, end = start / 1e4;
  const int64_t top =
      w - 1;  // the step with the full rate; -1: the rate decreases from the first step
  if (t < top) return start + (lr - start) * ratio(t, top);
  const int64_t fall = std::max<int64_t>(T - 1 - top, 1);
  return lr + (end - lr) * ratio(std::min(t - top, fall), fall);
}

}  // namespace

double Schedule::at(int64_t t) const {
  const int64_t w = warmup_steps, T = total_steps;
  t = std::clamp<int64_t>(t, 0, std::max<int64_t>(T - 1, 0));
  if (kind == Kind::one_cycle) return one_cycle(lr, t, w, T);
  if (t < w) return lr * ratio(t + 1, w);
  const double p = ratio(t - w, std::max<int64_t>(T - w, 1));
  switch (kind) {
    case Kind::linear:
      return final_lr + (lr - final_lr) * (1 - p);
    case Kind::cosine:
      return final_lr + (lr - final_lr) * (1 + std::cos(std::numbers::pi * p)) / 2;
    case Kind::inverse_sqrt:
      return lr * std::sqrt(ratio(std::max<int64_t>(w, 1), t + 1));
    case Kind::constant:
    case Kind::one_cycle:
      break;
  }
  return lr;
}

}  // namespace longhand::train
