// Loss: what a trainer minimises.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "longhand/autograd/variable.h"
#include "longhand/data/dataset.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// The size of a batch.
struct BatchSize {
  int64_t sequences = 0;
  int64_t targets = 0;  // without ignored ones
  int64_t tokens = 0;   // without padding
};
inline BatchSize size_of(const data::Batch& batch) {
  return {batch.tokens.size(0), data::count_targets(batch.targets), data::count_tokens(batch)};
}

/// The loss of a part of a batch.
struct Loss {
  /// A scalar: this part's share of the mean over the whole batch. Shares add up to that mean.
  Variable value;
  int64_t correct = 0;  // targets predicted correctly
  /// If `value` is a weighted sum of several terms: each term by name, without its weight.
  std::map<std::string, double> terms{};
  /// The value to record instead of `value`: with label smoothing, the unsmoothed loss.
  std::optional<double> unsmoothed{};

  double recorded() const { return unsmoothed ? *unsmoothed : value.value().item(); }
};

/// Computes the loss of a part of a batch. Sums are divided by `whole`, the size of the batch. See
/// cross_entropy_loss().
using LossFn =
    std::function<Loss(const data::Batch& part, const BatchSize& whole, const nn::Pass& pass)>;

}  // namespace longhand::train
