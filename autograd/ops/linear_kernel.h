// The blocked kernel of linear(): a product fused with the operations before it (the prologue) and
// after it (the epilogue). The formulas are in linear.cpp.
#pragma once

#include "longhand/autograd/ops/dropout_mask.h"
#include "longhand/core/tensor.h"
#include "longhand/core/view.h"

namespace longhand::ops {

/// a = dropout(gelu(norm(x))), where each step is optional.
struct Prologue {
  Tensor norm_weight, norm_bias;  // rows; undefined without a norm
  double eps;
  bool centred;
  bool gelu;
  DropoutMask dropout;

  bool normalises() const { return norm_weight.defined(); }
  bool activates() const { return gelu || dropout.on(); }
  /// Whether a differs from x.
  bool changes() const { return normalises() || activates(); }
};

/// y = residual + dropout(z), where the residual is a separate operand.
struct Epilogue {
  DropoutMask dropout;
};

/// y = residual + dropout(a weightᵀ + bias) for rows x (., k), weight (n, k) and rows y (., n);
/// bias (n) and residual (rows like y) may be null.
template <class T>
void linear_forward(Rows<const T> x, const Tensor& weight, const T* bias, const T* residual,
                    Rows<T> y, const Prologue& prologue, const Epilogue& epilogue);

/// A gradient to = beta to + g in row-major memory; null if it is not required.
template <class T>
struct GradientTo {
  T* to = nullptr;
  T beta = 0;

  explicit operator bool() const { return to != nullptr; }
};

/// Destinations of the gradients. With a prologue, that of x may be the rows x themselves.
template <class T>
struct LinearGradients {
  GradientTo<T> x, weight, bias, norm_weight, norm_bias;
};

/// The gradients of linear_forward() from dy, except that of the residual, which is dy. Sums over
/// the rows are computed in blocks and in partial sums of tasks, which depend on the sizes alone.
template <class T>
void linear_backward(Rows<const T> x, const Tensor& weight, Rows<const T> dy,
                     const Prologue& prologue, const Epilogue& epilogue,
                     const LinearGradients<T>& to);

}  // namespace longhand::ops
