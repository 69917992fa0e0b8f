// Ridge regression of the values of earlier tokens on their keys, read with a query. Delta rules
// approximate it by one step of gradient descent per token. von Oswald et al. 2025, "MesaNet"
// (arXiv 2506.05233).
//
//   A_i = e^{g_i} A_(i-1) + β_i k_i k_iᵀ,   B_i = e^{g_i} B_(i-1) + β_i k_i v_iᵀ,   out_i = B_iᵀ (A_i + diag(λ))⁻¹ q_i
#pragma once

#include <functional>
#include <memory>

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/attention/ops/scan.h"

namespace longhand::attention {

/// Solves M x = y for every row of y (…, D), each with its own positive definite matrix M;
/// `product` computes M p for the rows of p (…, D). Takes at most `steps` conjugate gradient steps
/// from x = 0; rows whose residual has reached rounding error stop. No gradients. Hestenes &
/// Stiefel 1952.
Tensor conjugate_gradients(const std::function<Tensor(const Tensor& p)>& product, const Tensor& y,
                           int64_t steps);

struct RidgeOptions {
  int64_t steps = 30;  // of conjugate gradients
  bool exact = false;  // by inverses of all matrices instead, in time N D³ and memory N D²
  /// The parts before this one: A and B start from the sums after them. Null: there are none.
  std::shared_ptr<const Join> join{};
};

/// Computes out (B, N, H, E) for q, k (B, N, H, D), v (B, N, H, E), beta >= 0 (B, N, H), log_decay
/// (B, N, H), undefined for 0, and lambda > 0 (H, D); other operands of a delta rule are ignored.
///
/// Products with A are scans, one per step. Gradients are those of the exact solution, by the
/// implicit function theorem, and solve as many systems again. Differentiable with respect to all
/// inputs and lambda. Throws ShapeError if shapes or dtypes do not match.
Variable ridge_scan(const DeltaInputs& inputs, const Variable& lambda,
                    const RidgeOptions& options = {});

/// Advances A (B, H, D, D) and B (B, H, D, E), undefined for zeros, by one token, whose operands
/// have no axis N. Returns out (B, H, E). Computes in f64 and without gradients.
Tensor ridge_step(Tensor& A, Tensor& B, const DeltaOperands<Tensor>& inputs, const Tensor& lambda,
                  const RidgeOptions& options = {});

}  // namespace longhand::attention
