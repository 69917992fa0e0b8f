// The blocked kernel of linear(): products with one input, fused with the operations before them
// (the prologue) and the dropout after them. The formulas are in linear.cpp.
#pragma once

#include <span>
#include <vector>

#include "longhand/autograd/ops/dropout_mask.h"
#include "longhand/autograd/ops/rows.h"
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

/// A linear layer of a shared input: weight (n, k), a `parameter` or computed; bias (n) or null.
template <class T>
struct ForwardLayer {
  Tensor weight;
  bool parameter;
  const T* bias;
  Rows<T> y;
};

/// y = residual + dropout(a weightᵀ + bias) for rows x (., k) and rows y (., n) of each layer. The
/// residual (rows like y) may be null; dropout and a residual require a single layer.
template <class T>
void linear_forward(Rows<const T> x, std::span<const ForwardLayer<T>> layers, const T* residual,
                    const Prologue& prologue, const DropoutMask& dropout);

/// A layer in the backward pass: the gradient dy of its result, and where to write the gradients of
/// its parameters.
template <class T>
struct BackwardLayer {
  Tensor weight;
  Rows<const T> dy;
  GradientTo<T> dweight, dbias;
};

/// Where to write the gradients that are summed over layers. With a prologue, the gradient of x may
/// overwrite the rows x.
template <class T>
struct InputGradients {
  GradientTo<T> x, norm_weight, norm_bias;
};

/// Computes the gradients of linear_forward() from dy, except that of the residual, which is dy.
/// Sums over rows are divided into blocks and partial sums per task by the sizes alone.
template <class T>
void linear_backward(Rows<const T> x, const std::vector<BackwardLayer<T>>& layers,
                     const Prologue& prologue, const DropoutMask& dropout,
                     const InputGradients<T>& to);

}  // namespace longhand::ops
