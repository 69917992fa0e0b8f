// Nyströmformer: softmax attention through m landmarks. Xiong et al. 2021 (arXiv 2102.03902), eq.
// 13 and 14. Landmarks Q̃, K̃ are means of m consecutive segments of the queries and keys; with τ =
// 1/sqrt(D)
//
//   F = softmax(τ Q K̃ᵀ) (N, m),   A = softmax(τ Q̃ K̃ᵀ) (m, m),   G = softmax(τ Q̃ Kᵀ) (m, N)
//   O = F Z (G V) + conv(V),   Z near A⁺ after a few steps of  Z <- Z/4 (13 I - AZ (15 I - AZ (7 I
//   - AZ)))
//
// from Z = Aᵀ / max column sum of A (its row sums are 1), of each matrix by itself, so that a
// sample does not depend on others of its batch. Razavi et al. 2014, the iteration. With exact Z
// the result for m < N is worse, not better: stopping early regularises.
//
// Segments are those of the real tokens of each sample, and differ by at most one token, the
// shorter ones first. A sample of at most m real tokens gets exact softmax attention. The
// convolution along the tokens has one filter a head.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "longhand/attention/dropout_option.h"
#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

// (B, 1, m, N): times tokens, the means of m segments of the first lengths[b] of them; zeros where
// there are fewer tokens than segments.
Tensor segment_means(const std::vector<int32_t>& lengths, int64_t m, int64_t tokens, DType dtype) {
  Tensor means = Tensor::zeros({static_cast<int64_t>(lengths.size()), 1, m, tokens}, dtype);
  dispatch_float(dtype, [&]<class T>() {
    T* row = means.data<T>();
    for (const int32_t length : lengths) {
      const int64_t size = length / m, longer = length % m;
      int64_t begin = 0;
      for (int64_t segment = 0; segment < m; ++segment, row += tokens) {
        const int64_t n = size + (segment >= m - longer);
        if (size > 0) std::fill_n(row + begin, n, T{1} / static_cast<T>(n));
        begin += n;
      }
    }
  });
  return means;
}

// Near the pseudo-inverse of A (…, m, m), whose rows sum to 1.
Variable iterated_inverse(const Variable& A, int64_t iterations) {
  const int64_t m = A.size(-1);
  const Variable column_sums = sum(A, {-2}, true);
  Variable Z = transpose(A, -2, -1) / max(column_sums, -1, true);
  Tensor identity = Tensor::zeros({m, m}, A.dtype());
  identity.reshape({m * m}).slice(0, 0, m * m, m + 1).fill(1);
  const Variable I(identity);
  for (int64_t i = 0; i < iterations; ++i) {
    const Variable AZ = matmul(A, Z);
    const Variable inner = 15 * I - matmul(AZ, 7 * I - AZ);
    Z = matmul(Z, 13 * I - matmul(AZ, inner), 0.25);
  }
  return Z;
}

class Nystrom final : public Variant {
 public:
  Nystrom(const nn::Scope& scope_, const Config& config)
      : Variant(scope_, config),
        landmarks_(config.options.get_int("landmarks", 64, 1, 1 << 16)),
        iterations_(config.options.get_int("pinv_iterations", 6, 0, 1000)) {
    refuse_dropout(config, "nystrom");
    const int64_t width = config.options.get_int("conv_kernel", 0, 0, 1 << 16);
    config.options.require(width == 0 || width % 2 == 1, "conv_kernel",
                           "an odd number is wanted, or 0 for no convolution");
    if (width)
      conv_.emplace(scope("conv"), Shape{config.heads, width},
                    nn::init::uniform(1 / std::sqrt(static_cast<double>(width))));
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass&) override {
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), m = landmarks_;
    check<ShapeError>(k.size(1) == N, "nystrom: as many queries as keys are wanted, not ", N,
                      " and ", k.size(1));
    // All samples have the same segments if there is no padding: one row stands for them.
    const std::vector<int32_t> lengths = mask.lengths.defined()
                                             ? mask.lengths.to_vector<int32_t>()
                                             : std::vector<int32_t>{static_cast<int32_t>(N)};
    Tensor few = Tensor::empty({static_cast<int64_t>(lengths.size()), 1, 1, 1}, DType::u8);
    int64_t exact = 0;
    for (size_t b = 0; b < lengths.size(); ++b) exact += few.data<uint8_t>()[b] = lengths[b] <= m;
    const bool all = exact == static_cast<int64_t>(lengths.size());

    Variable out;
    if (!all) out = through_landmarks(q, k, v, mask, lengths);
    if (exact) {
      // Tokens beyond the first m are padding in these samples.
      const int64_t n = std::min(N, m);
      Variable first =
          softmax_attention(slice(q, 1, 0, n), slice(k, 1, 0, n), slice(v, 1, 0, n), mask);
      if (n < N) first = concat({first, Variable(Tensor::zeros({B, N - n, H, D}, q.dtype()))}, 1);
      out = all ? first : where(few, first, out);
    }
    if (conv_) {
      const Variable filtered = depthwise_conv1d(reshape(v, {B, N, H * D}), *conv_);
      out = out + reshape(filtered, {B, N, H, D});
    }
    return out;
  }

  // softmax(τ q kᵀ), (B, H, N, M) for q (B, H, N, D), k (B, H, M, D); keys that are padding get 0.
  static Variable weights(const Variable& q, const Variable& k, const Mask& mask = {}) {
    Variable scores = matmul(q, transpose(k, 2, 3), 1 / std::sqrt(static_cast<double>(q.size(3))));
    if (mask.lengths.defined())
      scores = where(real_tokens(mask.lengths, k.size(2)).permute({0, 2, 3, 1}), scores,
                     -std::numeric_limits<double>::infinity());
    return softmax(scores);
  }

  static Variable softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                                    const Mask& mask) {
    const Variable p = weights(transpose(q, 1, 2), transpose(k, 1, 2), mask);
    return transpose(matmul(p, transpose(v, 1, 2)), 1, 2);
  }

  Variable through_landmarks(const Variable& q, const Variable& k, const Variable& v,
                             const Mask& mask, const std::vector<int32_t>& lengths) const {
    const Variable Q = transpose(q, 1, 2), K = transpose(k, 1, 2), V = transpose(v, 1, 2);
    const Variable means(segment_means(lengths, landmarks_, q.size(1), q.dtype()));
    const Variable Qm = matmul(means, Q), Km = matmul(means, K);  // (B, H, m, D)
    const Variable F = weights(Q, Km), A = weights(Qm, Km), G = weights(Qm, K, mask);
    const Variable Z = iterated_inverse(A, iterations_);
    return transpose(matmul(F, matmul(Z, matmul(G, V))), 1, 2);
  }

  int64_t landmarks_, iterations_;
  std::optional<nn::Parameter> conv_;  // (H, conv_kernel)
};

}  // namespace

Registration nystrom_variant() {
  return {{.summary = "softmax attention through m landmarks; exact for at most m tokens",
           .averages = false,
           .positional = true,
           .causal_reason = "landmarks average future tokens",
           .cross_lengths = false,
           .time = "N m D + m^3",
           .memory = "N m",
           .state = "-",
           .paper = "Xiong et al. 2021, arXiv 2102.03902"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Nystrom>(scope, config);
          },
          {{{"landmarks", 4}}, {{"landmarks", 4}, {"conv_kernel", 3}}}};
}

}  // namespace longhand::attention
