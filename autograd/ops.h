// Prototypes of the operations. Each is defined in a file of its own in ops/, with its formula,
// its kernels and its gradient.
//
// Throughout: shapes broadcast only where stated; axes may be negative; invalid arguments throw
// ShapeError, naming the operation and the shapes. The axes of a result have the same memory order
// as those of its (first) input.
#pragma once

#include <optional>

#include "longhand/autograd/join.h"
#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand {

class Communicator;

// ---- arithmetic: a and b broadcast -------------------------------------------------------------
Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);
/// scale * x + shift
Variable affine(const Variable& x, double scale, double shift = 0);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator+(const Variable& a, double b) { return affine(a, 1, b); }
inline Variable operator-(const Variable& a, double b) { return affine(a, 1, -b); }
inline Variable operator*(const Variable& a, double b) { return affine(a, b); }
inline Variable operator/(const Variable& a, double b) { return affine(a, 1 / b); }
inline Variable operator+(double a, const Variable& b) { return affine(b, 1, a); }
inline Variable operator-(double a, const Variable& b) { return affine(b, -1, a); }
inline Variable operator*(double a, const Variable& b) { return affine(b, a); }
inline Variable operator-(const Variable& a) { return affine(a, -1); }

// ---- element by element ------------------------------------------------------------------------
Variable exp(const Variable& x);
/// log(x + shift)
Variable log(const Variable& x, double shift = 0);
Variable sqrt(const Variable& x);
Variable square(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
Variable relu(const Variable& x);
/// x for x > 0, alpha (e^x - 1) for x <= 0; alpha >= 0. Clevert et al. 2016 (arXiv 1511.07289).
Variable elu(const Variable& x, double alpha = 1);
/// elu(x) + 1 without cancellation: x + 1 for x > 0, e^x for x <= 0. The feature map of
/// Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 7.
Variable elu_plus_one(const Variable& x);
/// x Phi(x), with the error function, not its tanh approximation. Hendrycks & Gimpel 2016 (arXiv
/// 1606.08415).
Variable gelu(const Variable& x);
/// x / (1 + e^-x), also called swish. Ramachandran et al. 2017 (arXiv 1710.05941).
Variable silu(const Variable& x);
/// outer log(1 + e^(inner x)), for x of any size: log sigmoid(x) is softplus(x, -1, -1).
Variable softplus(const Variable& x, double inner = 1, double outer = 1);
/// [cos x, sin x] for x (…, m): (…, 2m).
Variable cos_sin(const Variable& x);
/// Rotates the pairs (x_l, x_{l+R}) of the first 2 R channels of x (…, D) by the angles of turns
/// (…, 2 R) = [cos, sin], which broadcasts; others stay. Throws ShapeError unless 2 R <= D.
Variable rotate_pairs(const Variable& x, const Variable& turns);

// ---- products ----------------------------------------------------------------------------------
/// alpha a b for a (…, m, k) and b (…, k, n): (…, m, n). Batch axes broadcast. Permuted and
/// transposed views are multiplied in place, without a copy.
Variable matmul(const Variable& a, const Variable& b, double alpha = 1);
/// Arguments of dropout() below, 0 <= p < 1.
struct DropoutOptions {
  double p = 0;
  Generator generator{0};
  /// The section of axis 1 that the operand holds, such as the tokens of (B, N, …). The elements
  /// kept there are the same as in dropout of the whole.
  Section section = {};
};
/// Arguments of layer_norm(), or, if not `centred`, of rms_norm() with an additional bias.
struct NormOptions {
  Variable weight = {}, bias = {};  // either may be undefined
  double eps = 1e-5;
  bool centred = true;
};
/// Operations that linear() fuses with its product, without further passes over memory.
struct LinearOptions {
  bool gelu = false;                     // of x
  DropoutOptions input = {};             // of x, after the GELU
  DropoutOptions output = {};            // of the product, before the residual is added
  Variable residual = {};                // (…, out)
  std::optional<NormOptions> norm = {};  // of x, before the GELU
};
/// x Wᵀ + bias for x (…, in), weight W (out, in), bias (out) or undefined: (…, out). With options,
/// residual + dropout(dropout(gelu(norm(x))) Wᵀ + bias), each part if its option is set.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {},
                const LinearOptions& options = {});
/// A weight (out, in), and a bias (out) or undefined.
struct LinearParameters {
  Variable weight, bias = {};
};
/// Returns linear() for several layers of one x, whose norm, GELU and dropout are computed once.
/// The options `output` and `residual` require a single layer: throws ConfigError otherwise.
Variables linear(const Variable& x, const ShortVector<LinearParameters>& layers,
                 const LinearOptions& options = {});
/// The Moore-Penrose inverses (…, n, m) of matrices a (…, m, n). Singular values that do not exceed
/// tolerance times the largest one count as 0 (see inverted_svd() in core/linalg.h). The gradient
/// assumes a constant rank. Computed in f64, since the condition number multiplies errors.
Variable pinv(const Variable& a, double tolerance = 1e-12);
/// `iterations` steps of Z <- Z/4 (13 I - AZ (15 I - AZ (7 I - AZ))) for each of a's matrices (…,
/// m, m), from Z = start of the same shape. They converge to A⁺ if start is close enough to it,
/// such as Aᵀ / (largest column sum times largest row sum of |A|). Razavi et al. 2014; Xiong et al.
/// 2021 (arXiv 2102.03902), eq. 11.
Variable iterative_pinv(const Variable& a, const Variable& start, int64_t iterations);
/// The Tikhonov-regularised inverses (aᵀ a + eps I)⁻¹ aᵀ, (…, n, m), of a (…, m, n) with m >= n,
/// for eps > 0. They approach the Moore-Penrose inverses for eps -> 0; a need not be symmetric.
Variable ridge_inverse(const Variable& a, double eps);
/// Arguments of depthwise_conv1d().
struct DepthwiseConvOptions {
  bool causal = false;  // filters end at t, instead of being centred there
  Tensor lengths = {};  // (B) i32, tokens read of each sequence; undefined: T
};
/// Convolves each channel c of x (B, T, C) along axis 1 with its own filter weight[c] (C, width),
/// zero-padded to the same length: out[b,t,c] = sum_j weight[c,j] x[b, t + j - h, c], where h is
/// width/2, or width - 1 if causal. A centred filter of even width reaches one step further back
/// than ahead. A weight (C/g, width) shares each filter among g neighbouring channels. With
/// lengths, x counts as 0 beyond them, whatever it holds, as do the result and its gradient.
Variable depthwise_conv1d(const Variable& x, const Variable& weight,
                          const DepthwiseConvOptions& options = {});

// ---- rows (along the last axis) and reductions -------------------------------------------------
/// e^x_j / sum e^x, along the last axis. If all elements of a row are -inf: 0, with gradient 0.
Variable softmax(const Variable& x);
/// x_j - log sum e^x, along the last axis.
Variable log_softmax(const Variable& x);
/// Sum over the given axes, which are kept with size 1 if keep_axes. Without axes, over all of
/// them. An empty sum is 0.
Variable sum(const Variable& x, ShortVector<int> axes = {}, bool keep_axes = false);
/// Mean over the same axes as sum(). Throws if there are no elements.
Variable mean(const Variable& x, ShortVector<int> axes = {}, bool keep_axes = false);
/// Maximum along an axis; of equal maxima the first gets the gradient. Throws if the axis is empty.
Variable max(const Variable& x, int axis, bool keep_axis = false);
/// Cumulative sums along an axis, from the front or from the back.
Variable cumsum(const Variable& x, int axis, bool from_back = false);
/// (x - mean) / sqrt(variance + eps) * weight + bias over the last axis, with the biased variance
/// (1/n). weight and bias are (n) or undefined. Ba et al. 2016 (arXiv 1607.06450).
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    double eps = 1e-5);
/// x / sqrt(mean x² + eps) * weight over the last axis. weight is (n) or undefined. Zhang &
/// Sennrich 2019 (arXiv 1910.07467), eq. 4.
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-6);
/// rms_norm(silu(x), weight, eps) in one pass over memory, with the same shapes and errors.
Variable silu_rms_norm(const Variable& x, const Variable& weight, double eps = 1e-6);
/// The function that a gate applies to its logits z: z / (1 + e^-z), or 1 / (1 + e^-z).
enum class GateFunction { silu, sigmoid };
/// Arguments of gated().
struct GatedOptions {
  GateFunction function = GateFunction::silu;
  std::optional<NormOptions> norm = {};  // along the last axis
  bool norm_last = false;                // normalise the gated x instead of x
};
/// norm(x) f(logits) or, with norm_last, norm(x f(logits)), for x and logits of the same shape, in
/// one pass over memory. Without a norm: x f(logits); with undefined logits: norm(x).
Variable gated(const Variable& x, const Variable& logits, const GatedOptions& options = {});

// ---- shapes: views if strides allow ------------------------------------------------------------
Variable reshape(const Variable& x, const Shape& shape);
/// Returns x itself if it is row-major without holes, otherwise a row-major copy. reshape() does
/// not replace this: it returns a view if the axes merge evenly, such as of every second element.
Variable contiguous(const Variable& x);
/// Converts x to another float dtype, and its gradient back; returns x itself if it has that dtype.
Variable cast(const Variable& x, DType dtype);
Variable transpose(const Variable& x, int a, int b);
Variable permute(const Variable& x, ShortVector<int> order);
Variable slice(const Variable& x, int axis, int64_t begin, int64_t end, int64_t step = 1);
/// The elements at one index of an axis, which is removed.
Variable select(const Variable& x, int axis, int64_t index);
Variable unsqueeze(const Variable& x, int axis);
Variable squeeze(const Variable& x, int axis);
Variable broadcast_to(const Variable& x, const Shape& shape);
/// Joins tensors along an existing axis.
Variable concat(const Variables& parts, int axis);
/// Joins tensors of the same shape along a new axis.
Variable stack(const Variables& parts, int axis);

// ---- selection ---------------------------------------------------------------------------------
/// condition ? a : b, element by element; condition is a tensor of u8, and all three broadcast.
/// NaNs in elements that are not selected affect neither the result nor the gradients.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);
Variable where(const Tensor& condition, const Variable& a, double b);
/// out[…, i, …] = x[…, index[…, i, …], …] along axis, for an index of i32 that has the rank of x
/// and its sizes along the other axes. Throws if an index is out of range.
Variable gather(const Variable& x, int axis, const Tensor& index);
/// The rows table[tokens] for tokens of i32, of any shape, and table (V, d): (shape of tokens, d).
/// Throws if a token is not in 0 … V-1.
Variable embedding(const Variable& table, const Tensor& tokens);

// ---- ranks: collective, like the operations of Communicator -------------------------------------
// Every rank has its own loss, and the gradients are those of the sum of all losses, which no rank
// computes: each rank calls backward() on its own part. The graphs of all ranks must contain the
// same of these operations in the same order, and each of them must lead to the loss on all ranks
// or on none; their gradients are collective as well. The group must outlive the graph.

/// Returns x of all ranks, (P, …).
Variable all_gather(const Variable& x, Communicator& ranks);
/// The sum of x over all ranks, by a tree.
Variable sum_over_ranks(const Variable& x, Communicator& ranks);
/// Returns y with y[p] = x[rank] of rank p, for x (P, …).
Variable all_to_all(const Variable& x, Communicator& ranks);
/// Returns x of the rank `distance` before this one, modulo P.
Variable shift(const Variable& x, Communicator& ranks, int distance);

// ---- training ----------------------------------------------------------------------------------
/// x / (1 - p) with probability 1 - p, else 0. Whether element i, in row-major order, is kept
/// depends on 16 bits at index i of the generator: no mask is stored, and recomputation is bitwise
/// identical. 0 <= p < 1, rounded to a multiple of 2^-16; p = 0 returns x. Srivastava et al. 2014.
Variable dropout(const Variable& x, const DropoutOptions& options);
inline Variable dropout(const Variable& x, double p, const Generator& generator) {
  return dropout(x, {p, generator});
}

struct CrossEntropyOptions {
  int32_t ignore_index = -100;            // targets to ignore
  double label_smoothing = 0;             // e: target (1-e) + e/classes; Szegedy et al. 2016, eq. 7
  std::optional<double> normalizer = {};  // divisor of the sum; default: the targets not ignored
};
/// Mean of -log softmax(logits)[target] over the targets not ignored, for logits (…, classes) and
/// targets (…) of i32: a scalar; 0 if all are ignored. Throws if a target is out of range.
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options = {});

struct KlDivergenceOptions {
  double temperature = 1;                 // t > 0
  Tensor targets = {};                    // (…) of i32; undefined: every row counts
  int32_t ignore_index = -100;            // rows with this target do not count
  std::optional<double> normalizer = {};  // divisor of the sum; default: the rows that count
};
/// Mean over the rows that count of t² KL(softmax(y / t) || softmax(x / t)), for logits x (…,
/// classes) and logits y of a teacher, of the same shape and dtype: a scalar; 0 if no row counts.
/// The teacher is a constant. The factor t² keeps the scale of gradients when t changes. Hinton et
/// al. 2015 (arXiv 1503.02531), section 2.
Variable kl_divergence(const Variable& logits, const Tensor& teacher,
                       const KlDivergenceOptions& options = {});

}  // namespace longhand
