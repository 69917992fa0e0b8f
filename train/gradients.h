// What lies between a backward pass and an optimizer step: gradients as a list, their norm, and
// their sum over micro-batches.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhand/autograd/variable.h"

namespace longhand::train {

/// Parameters by name, as Module::named_parameters() lists them.
using Parameters = std::vector<std::pair<std::string, Variable>>;

/// One gradient for each of a list of parameters, in memory like its parameter; undefined for a
/// parameter that no loss depended on.
using Gradients = std::vector<Tensor>;

/// Takes the gradients away from the parameters: the next backward pass starts afresh.
Gradients take_gradients(const Parameters& parameters);

/// The square root of the sum of all squares, added in double and in an order that depends on the
/// sizes alone.
double global_norm(const Gradients& gradients);

/// What to multiply gradients of this global norm with so that it does not exceed max_norm:
/// min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0. Pascanu et al. 2013 (arXiv 1211.5063),
/// algorithm 1.
double clip_scale(double norm, double max_norm);

/// The contribution of one micro-batch: gradients of its part of the loss, and the numbers that are
/// summed with them.
struct Contribution {
  Gradients gradients;
  double loss = 0;      // its part of the mean over the whole batch
  int64_t correct = 0;  // targets predicted right
};

/// Adds `right` to `left`.
void merge(Contribution& left, Contribution&& right);

/// The sum of contributions by a binary tree whose shape depends on their number alone: 1+2, 3+4,
/// (1+2)+(3+4), …, as a binary counter carries. Processes that each hold an aligned block of
/// micro-batches can therefore finish it between them with the same bits. At most log2(n) + 1
/// contributions are alive.
class TreeSum {
 public:
  void add(Contribution contribution);
  /// The sum of what was added, which is forgotten. Throws Error if nothing was.
  Contribution finish();

 private:
  std::vector<std::pair<int, Contribution>> stack_;  // height of a subtree, its sum
};

}  // namespace longhand::train
