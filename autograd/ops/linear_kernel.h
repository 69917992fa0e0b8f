// The blocked kernel of linear(): a product with what stands before it, the prologue, and behind
// it, the epilogue. The formulas are in linear.cpp.
#pragma once

#include "longhand/autograd/ops/dropout_mask.h"
#include "longhand/core/tensor.h"
#include "longhand/core/view.h"

namespace longhand::ops {

/// a = dropout(gelu(norm(x))), each of them optional.
struct Prologue {
  Tensor norm_weight, norm_bias;  // rows; undefined without a norm
  double eps;
  bool centred;
  bool gelu;
  DropoutMask dropout;

  bool normalises() const { return norm_weight.defined(); }
  bool activates() const { return gelu || dropout.on(); }
  /// Whether a is not x itself.
  bool changes() const { return normalises() || activates(); }
};

/// y = residual + dropout(z), where the residual is an operand of its own.
struct Epilogue {
  DropoutMask dropout;
};

/// y = residual + dropout(a weightᵀ + bias) for rows x (., k), weight (n, k) and rows y (., n);
/// bias (n) and residual (rows like y) may be null.
template <class T>
void linear_forward(Rows<const T> x, const Tensor& weight, const T* bias, const T* residual,
                    Rows<T> y, const Prologue& prologue, const Epilogue& epilogue);

/// A gradient to = beta to + g in row-major memory; null if it is not wanted.
template <class T>
struct GradientTo {
  T* to = nullptr;
  T beta = 0;

  explicit operator bool() const { return to != nullptr; }
};

/// Where the gradients go. x may be the rows x themselves where there is a prologue.
template <class T>
struct LinearGradients {
  GradientTo<T> x, weight, bias, norm_weight, norm_bias;
};

/// The gradients of linear_forward() from dy, but for that of the residual, which is dy. Sums over
/// the rows go by blocks and the sums of several tasks, split by the sizes alone.
template <class T>
void linear_backward(Rows<const T> x, const Tensor& weight, Rows<const T> dy,
                     const Prologue& prologue, const Epilogue& epilogue,
                     const LinearGradients<T>& to);

}  // namespace longhand::ops
