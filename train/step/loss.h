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
  int64_t targets = 0;  // that count
  int64_t tokens = 0;   // without padding
};
inline BatchSize size_of(const data::Batch& batch) {
  return {batch.tokens.size(0), data::count_targets(batch.targets), data::count_tokens(batch)};
}

/// The loss of a part of a batch.
struct Loss {
  /// Its part of the mean over the whole batch, a scalar: the values of all parts add up to that mean.
  Variable value;
  int64_t correct = 0;  // targets predicted correctly
  /// If `value` is a weighted sum of several terms: each of them by name, without its weight.
  std::map<std::string, double> terms{};
  /// What is recorded if it is not `value`: with label smoothing, the loss of the targets of the data.
  std::optional<double> unsmoothed{};

  double recorded() const { return unsmoothed ? *unsmoothed : value.value().item(); }
};

/// Computes the loss of a part of a batch; `whole` is the size of that batch, by which sums are
/// divided. See cross_entropy_loss().
using LossFn =
    std::function<Loss(const data::Batch& part, const BatchSize& whole, const nn::Pass& pass)>;

}  // namespace longhand::train
