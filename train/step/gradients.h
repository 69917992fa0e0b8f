// Gradients between the backward pass and the optimizer step: as a list, their norm, and their sum
// over micro-batches.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhand/autograd/variable.h"

namespace longhand::train {

/// Parameters by name, as returned by Module::named_parameters().
using Parameters = std::vector<std::pair<std::string, Variable>>;

/// One gradient for each of a list of parameters, with the strides of its parameter; undefined for
/// a parameter that the loss does not depend on.
using Gradients = std::vector<Tensor>;

/// All elements of a dense tensor in the order of its memory, as a view of one axis.
Tensor flat(const Tensor& x);

/// Moves the gradient out of one parameter, dense and with its strides; undefined if it has none.
Tensor take_gradient(const Variable& parameter);
/// Moves the gradients out of the parameters, so that the next backward pass starts from none.
Gradients take_gradients(const Parameters& parameters);

/// Returns the square root of the sum of all squares, summed in double in an order that depends on
/// the sizes alone.
double global_norm(const Gradients& gradients);

/// Returns the factor for gradients of this global norm that limits it to max_norm:
/// min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0. Pascanu et al. 2013 (arXiv 1211.5063),
/// algorithm 1.
double clip_scale(double norm, double max_norm);

/// The values of a loss, added up over parts of a batch or over steps.
struct LossSums {
  double loss = 0;                        // of a part: its part of the mean over the whole batch
  int64_t correct = 0;                    // targets predicted correctly
  std::map<std::string, double> terms{};  // Loss::terms

  LossSums& operator+=(const LossSums& other);
  friend bool operator==(const LossSums&, const LossSums&) = default;
};

/// The contribution of one micro-batch: gradients of its part of the loss, and its values.
struct Contribution {
  Gradients gradients;
  LossSums sums{};
};

/// Adds `right` to `left`.
void merge(Contribution& left, Contribution&& right);

/// The sum of contributions by a binary tree whose shape depends on their number alone: 1+2, 3+4,
/// (1+2)+(3+4), …, like the carries of a binary counter. Processes that each hold an aligned block of
/// micro-batches can therefore complete the sum together with the same bits. At most log2(n) + 1
/// contributions are alive.
class TreeSum {
 public:
  void add(Contribution contribution);
  /// Returns what gradient i of the sum would be, if `gradient` were that of the last contribution.
  /// Takes gradient i of all others. For a last contribution whose gradients come one by one; it is
  /// then added without them.
  Tensor last_gradient(size_t i, Tensor gradient);
  /// Returns the sum of all contributions and resets. Throws Error if there was none.
  Contribution finish();

 private:
  std::vector<std::pair<int, Contribution>> stack_;  // height of a subtree, its sum
};

}  // namespace longhand::train
