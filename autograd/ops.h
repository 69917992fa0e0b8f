// The operations: one prototype each, the table of contents of ops/. Each is one file there, with
// its formula, its kernels and its gradient.
//
// Throughout: shapes broadcast only where it says so; axes may be negative; what does not fit
// throws ShapeError naming the operation and the shapes. Results keep the order of axes in memory
// of their (first) input.
#pragma once

#include <optional>

#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand {

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
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
Variable square(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
Variable relu(const Variable& x);
/// x for x > 0, alpha (e^x - 1) for x <= 0. Clevert et al. 2016 (arXiv 1511.07289).
Variable elu(const Variable& x, double alpha = 1);
/// elu(x) + 1 without cancellation: x + 1 for x > 0, e^x for x <= 0. The feature map of
/// Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 7.
Variable elu_plus_one(const Variable& x);
/// x Phi(x), with the error function, not its tanh approximation. Hendrycks & Gimpel 2016 (arXiv
/// 1606.08415).
Variable gelu(const Variable& x);
/// [cos x, sin x] for x (…, m): (…, 2m).
Variable cos_sin(const Variable& x);

// ---- products ----------------------------------------------------------------------------------
/// alpha a b for a (…, m, k) and b (…, k, n): (…, m, n). Batch axes broadcast. Permuted and
/// transposed views are multiplied where they lie.
Variable matmul(const Variable& a, const Variable& b, double alpha = 1);
/// Dropout with probability 0 <= p < 1, as dropout() below does it.
struct DropoutOptions {
  double p = 0;
  Generator generator{0};
};
/// layer_norm(), or where not `centred` rms_norm() (and a bias).
struct NormOptions {
  Variable weight = {}, bias = {};  // either may be undefined
  double eps = 1e-5;
  bool centred = true;
};
/// What linear() does on its way, without a pass over memory of its own.
struct LinearOptions {
  bool gelu = false;                     // of x
  DropoutOptions input = {};             // of x, behind the GELU
  DropoutOptions output = {};            // of what is added to the residual
  Variable residual = {};                // (…, out)
  std::optional<NormOptions> norm = {};  // of x, before the GELU
};
/// x Wᵀ + bias for x (…, in), weight W (out, in), bias (out) or undefined: (…, out). With options,
/// residual + dropout(dropout(gelu(norm(x))) Wᵀ + bias).
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {},
                const LinearOptions& options = {});
/// The Moore-Penrose inverses (…, n, m) of matrices a (…, m, n). Singular values that are not above
/// tolerance * the largest count as 0 (see pseudo_inverse() in core/linalg.h); the gradient is that
/// of a rank that does not change.
Variable pinv(const Variable& a, double tolerance = 1e-12);
/// `iterations` steps of Z <- Z/4 (13 I - AZ (15 I - AZ (7 I - AZ))) for each of a's matrices (…,
/// m, m), from Z = start of the same shape: they converge to A⁺ from a start near enough, such as
/// Aᵀ / (largest column sum times largest row sum of |A|). Razavi et al. 2014; Xiong et al. 2021
/// (arXiv 2102.03902), eq. 11.
Variable iterative_pinv(const Variable& a, const Variable& start, int64_t iterations);
/// (aᵀ a + eps I)⁻¹ aᵀ, (…, n, m), for a (…, m, n) with m >= n and eps > 0: Tikhonov's inverse,
/// near the Moore-Penrose one for eps near 0, of any square matrix, not only of symmetric ones.
Variable ridge_inverse(const Variable& a, double eps);
/// Along axis 1 of x (B, T, C), each channel c with its own filter weight[c] (C, width), width odd,
/// zero-padded to the same length: out[b,t,c] = sum_j weight[c,j] x[b, t + j - width/2, c]. A
/// weight (C/g, width) shares each filter between g neighbouring channels.
Variable depthwise_conv1d(const Variable& x, const Variable& weight);

// ---- rows (along the last axis) and reductions -------------------------------------------------
/// e^x_j / sum e^x, along the last axis. A row of nothing but -inf gives zeros and gradient zero.
Variable softmax(const Variable& x);
/// x_j - log sum e^x, along the last axis.
Variable log_softmax(const Variable& x);
/// Over the axes named, which stay as size 1 with keep_axes; over all of them, to a scalar, if none
/// are named. An empty sum is 0.
Variable sum(const Variable& x, std::vector<int> axes = {}, bool keep_axes = false);
/// As sum. An empty mean throws.
Variable mean(const Variable& x, std::vector<int> axes = {}, bool keep_axes = false);
/// The largest along one axis; the gradient goes to the first of equals. An empty axis throws.
Variable max(const Variable& x, int axis, bool keep_axis = false);
/// Running sums along an axis.
Variable cumsum(const Variable& x, int axis);
/// (x - mean) / sqrt(variance + eps) * weight + bias over the last axis, variance by 1/n. weight
/// and bias (n), either may be undefined. Ba et al. 2016 (arXiv 1607.06450).
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    double eps = 1e-5);
/// x / sqrt(mean x² + eps) * weight. weight (n) or undefined. Zhang & Sennrich 2019 (arXiv
/// 1910.07467), eq. 4.
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-6);

// ---- shapes: views where strides allow ---------------------------------------------------------
Variable reshape(const Variable& x, const Shape& shape);
/// x itself if it is row-major without holes, else a row-major copy. reshape() is no substitute: it
/// gives a view wherever the axes merge evenly, such as of every second element.
Variable contiguous(const Variable& x);
Variable transpose(const Variable& x, int a, int b);
Variable permute(const Variable& x, std::vector<int> order);
Variable slice(const Variable& x, int axis, int64_t begin, int64_t end, int64_t step = 1);
/// One index of an axis, which goes away.
Variable select(const Variable& x, int axis, int64_t index);
Variable unsqueeze(const Variable& x, int axis);
Variable squeeze(const Variable& x, int axis);
Variable broadcast_to(const Variable& x, const Shape& shape);
/// Along an existing axis, whose sizes add up.
Variable concat(const Variables& parts, int axis);
/// Along a new axis.
Variable stack(const Variables& parts, int axis);

// ---- selection ---------------------------------------------------------------------------------
/// condition ? a : b, element by element; condition is a tensor of u8, and all three broadcast.
/// Selects, does not multiply: NaN on the side not taken stays there, in both directions.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);
Variable where(const Tensor& condition, const Variable& a, double b);
/// out[…, i, …] = x[…, index[…, i, …], …] along axis, for an index of i32 of x's rank whose other
/// sizes equal x's. Throws if an index is outside of x.
Variable gather(const Variable& x, int axis, const Tensor& index);
/// Rows table[tokens]: tokens of i32 (any shape), table (V, d): (tokens' shape, d). Throws if a
/// token is outside of 0 … V-1.
Variable embedding(const Variable& table, const Tensor& tokens);

// ---- training ----------------------------------------------------------------------------------
/// x / (1 - p) with probability 1 - p, else 0; element i, in row-major order, is decided by 16 bits
/// that i addresses in the generator, so nothing is stored and recomputation gives the same bits.
/// 0 <= p < 1, rounded to a multiple of 2^-16; p = 0 gives x. Srivastava et al. 2014.
Variable dropout(const Variable& x, double p, const Generator& generator);

struct CrossEntropyOptions {
  int32_t ignore_index = -100;            // targets to leave out
  double label_smoothing = 0;             // e: target (1-e) + e/classes; Szegedy et al. 2016, eq. 7
  std::optional<double> normalizer = {};  // divide the sum by this; by the targets counted if empty
};
/// Mean over the targets not ignored of -log softmax(logits)[target]: logits (…, classes), targets
/// of i32 (…). A scalar; 0 if all are ignored. Throws if a target is neither a class nor ignored.
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options = {});

}  // namespace longhand
