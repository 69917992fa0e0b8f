// LowRankLinear: a linear layer whose weight is the product of two narrow matrices.
#pragma once

#include <memory>
#include <optional>

#include "longhand/core/linalg.h"
#include "longhand/nn/linear.h"

namespace longhand::nn {

/// x Aᵀ Bᵀ + b, of shape (…, out), for x (…, in): a linear layer with the weight B A, of rank at
/// most r. A is weight_in (r, in), B weight_out (out, r). A row costs r (in + out) multiply-adds
/// instead of in · out. A norm, GELU or dropout before the layer is fused with the product with A,
/// dropout and a residual after it with the product with B; see Lazy.
class LowRankLinear : public Module {
 public:
  /// The initial weights are uniform. Their product has the variance of the weight of Linear, 2 /
  /// (in + out), and rows of A and columns of B have the same norm on average; bias (out) is 0.
  /// Throws ConfigError unless 1 <= rank <= min(in, out).
  LowRankLinear(const Scope& scope, int64_t in, int64_t out, int64_t rank, bool with_bias = true);
  Lazy forward(const Lazy& x) const;
  /// The parameters of the product with B.
  LinearParameters parameters_out() const {
    return {weight_out, bias ? Variable(*bias) : Variable()};
  }

  Parameter weight_in, weight_out;
  std::optional<Parameter> bias;
};

/// The layer of a model whose configuration sets its rank: a Linear if the rank is 0, otherwise a
/// LowRankLinear. Both register under the given name.
class LinearOfRank {
 public:
  LinearOfRank(const Scope& scope, int64_t in, int64_t out, int64_t rank);
  Lazy forward(const Lazy& x) const;
  /// Returns the result in `count` equal parts of the last axis, each in its own memory.
  Variables parts(const Lazy& x, int64_t count) const;
  /// Returns the results of several layers of x, computed together if they all have full rank.
  static Variables forward(const Lazy& x, const std::vector<const LinearOfRank*>& layers);

 private:
  std::unique_ptr<Linear> full_;
  std::unique_ptr<LowRankLinear> low_rank_;
};

/// The weights of a LowRankLinear.
struct LowRankFactors {
  Tensor in;   // A (r, in)
  Tensor out;  // B (out, r)
};

/// Returns the factors whose product is the matrix of this rank nearest to u diag(s) vt, a weight
/// (out, in): √s vt and u √s, for the largest singular values (Eckart & Young 1936). The error is
/// the square root of the sum of squares of the other singular values. Throws ShapeError unless 1
/// <= rank <= min(in, out).
LowRankFactors low_rank_factors(const Svd& weight, int64_t rank);

}  // namespace longhand::nn
