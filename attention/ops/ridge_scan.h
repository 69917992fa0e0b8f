// Ridge regression of the values of earlier tokens on their keys, read with a query: what a delta
// rule comes near to by one step of gradient descent for each token. von Oswald et al. 2025,
// "MesaNet" (arXiv 2506.05233).
//
//   A_i = e^{g_i} A_(i-1) + β_i k_i k_iᵀ,   B_i = e^{g_i} B_(i-1) + β_i k_i v_iᵀ,   out_i = B_iᵀ (A_i + diag(λ))⁻¹ q_i
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/attention/ops/scan.h"

namespace longhand::attention {

/// x with M x = y for every row of y (…, D), each with a positive definite matrix M of its own, of
/// which `product` gives M p for the rows of p (…, D): at most `steps` conjugate gradients from x =
/// 0. A row whose residual has fallen to rounding stays as it is. Without gradients. Hestenes &
/// Stiefel 1952.
Tensor conjugate_gradients(const std::function<Tensor(const Tensor& p)>& product, const Tensor& y,
                           int64_t steps);

struct RidgeOptions {
  int64_t steps = 30;  // of conjugate gradients
  bool exact = false;  // by the inverses of all matrices instead, in time N D³ and memory N D²
  /// The parts before this one: A and B begin with the sums after them. Null: there are none.
  std::shared_ptr<const Join> join{};
};

/// out (B, N, H, E) for q, k (B, N, H, D), v (B, N, H, E), beta >= 0 (B, N, H), log_decay (B, N,
/// H), or undefined for 0, and lambda > 0 (H, D); other operands of a delta rule are not read.
///
/// Products with A are scans, of which each step has one. Gradients are those of the exact
/// solution, by the implicit function theorem: they solve as many systems again. Differentiable
/// with respect to all inputs and lambda. Throws ShapeError if shapes or dtypes do not match.
Variable ridge_scan(const DeltaInputs& inputs, const Variable& lambda,
                    const RidgeOptions& options = {});

/// Advances A (B, H, D, D) and B (B, H, D, E), of which undefined ones mean zeros, by one token, whose
/// operands have no axis N. Returns out (B, H, E). In f64 and without gradients.
Tensor ridge_step(Tensor& A, Tensor& B, const DeltaOperands<Tensor>& inputs, const Tensor& lambda,
                  const RidgeOptions& options = {});

}  // namespace longhand::attention
