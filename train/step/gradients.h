// Gradients between the backward pass and the optimizer step: lists, norms, and sums over
// micro-batches.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhand/autograd/variable.h"

namespace longhand::train {

/// Parameters by name, as returned by Module::named_parameters().
using Parameters = std::vector<std::pair<std::string, Variable>>;

/// One gradient per parameter of a list, with the strides of the parameter; undefined if the loss
/// does not depend on it.
using Gradients = std::vector<Tensor>;

/// Returns all elements of a dense tensor in memory order, as a view with one axis.
Tensor flat(const Tensor& x);

/// Moves the gradient out of a parameter, dense and with its strides; undefined if it has none.
Tensor take_gradient(const Variable& parameter);
/// Moves the gradients out of the parameters, so that the next backward pass starts empty.
Gradients take_gradients(const Parameters& parameters);

/// Returns the square root of the sum of all squares, accumulated in double in an order that
/// depends only on the sizes.
double global_norm(const Gradients& gradients);

/// Returns the factor that scales gradients with global norm `norm` to at most max_norm: min(1,
/// max_norm / (norm + 1e-6)); 1 if max_norm is 0. Pascanu et al. 2013 (arXiv 1211.5063), algorithm
/// 1.
double clip_scale(double norm, double max_norm);

/// Values of a loss, summed over parts of a batch or over steps.
struct LossSums {
  double loss = 0;                        // a part contributes its share of the mean over the batch
  int64_t correct = 0;                    // targets predicted correctly
  std::map<std::string, double> terms{};  // Loss::terms

  LossSums& operator+=(const LossSums& other);
  friend bool operator==(const LossSums&, const LossSums&) = default;
};

/// The contribution of one micro-batch: the gradients of its share of the loss, and its values.
struct Contribution {
  Gradients gradients;
  LossSums sums{};
};

/// Adds `right` to `left`.
void merge(Contribution& left, Contribution&& right);

/// Sums contributions in a binary tree whose shape depends only on their number: 1+2, 3+4,
/// (1+2)+(3+4), …, like the carries of a binary counter. Processes that each hold an aligned block
/// of micro-batches can therefore complete the sum together, bitwise identical to one process. At
/// most log2(n) + 1 contributions are alive at a time.
class TreeSum {
 public:
  void add(Contribution contribution);
  /// Returns gradient i of the sum as if the last contribution had `gradient`, and moves gradient i
  /// out of all others. Used when the gradients of the last contribution arrive one at a time; that
  /// contribution is then added without gradients.
  Tensor last_gradient(size_t i, Tensor gradient);
  /// Returns the sum of all contributions and resets. Throws Error if there was none.
  Contribution finish();

 private:
  std::vector<std::pair<int, Contribution>> stack_;  // height of a subtree, its sum
};

}  // namespace longhand::train
