// Gaussian kernel attention, and Skyformer, its Nyström approximation. Chen et al. 2021 (arXiv
// 2111.00035). With x̂ = D^(-1/4) x
//
//   κ(x, y) = exp(-|x̂ - ŷ|² / (2 sigma²))
//   O = C V,  C_ij = κ(q_i, k_j)            "kernelized attention"; with `normalized`, over row
//   sums
//
// Normalised and sigma = 1, C is softmax attention with the scores (q·k - |k|²/2) / sqrt(D): the
// norms of queries cancel, and keys of equal norms make it softmax attention.
//
// With d landmarks, rows of [Q; K] (half of each, at random, among the real tokens of each sample),
//
//   C = κ(Q, L) (κ(L, L) + gamma I)^(-1) κ(L, K)
//
// which is exact if gamma = 0 and all rows are landmarks. κ(L, L) is positive definite, as softmax
// scores are not. For the inverse, M = S (κ(L, L) + gamma I) S with S = diag(row sums)^(-1/2) has
// its eigenvalues in (0, 1], and Z <- Z/4 (13 I - MZ (15 I - MZ (7 I - MZ))) from Z = I converges
// to M^(-1); stopping early regularises.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "longhand/attention/bases/dropout_option.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/bases/random_features.h"
#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"

namespace longhand::attention {
namespace {

// |x|²/2 along the last axis, for heads before tokens: (B, H, N, 1).
Variable norms(const Variable& x) { return half_square(x, 1); }

// -scale |x_i - y_j|²/2, (…, N, M) for x (…, N, D), y (…, M, D); not above 0 by rounding.
Variable distances(const Variable& x, const Variable& y, double scale) {
  const Variable s = matmul(x, transpose(y, -2, -1)) - norms(x) - transpose(norms(y), -2, -1);
  return affine(relu(-s), -scale);
}

// A^(-1) for positive definite A (H, d, d); directions that rounding has lost are left out.
//
//   dA = -Zᵀ dZ Zᵀ
Variable inverse(const Variable& A) {
  Tensor Z = Tensor::empty(A.shape(), A.dtype());
  for (int64_t h = 0; h < A.size(0); ++h)
    copy_into(Z.select(0, h), pseudo_inverse(A.value().select(0, h).contiguous()));
  return record("inverse", Z, {A}, [Z](const Tensor& dZ, std::span<GradSlot> slots) {
    const Tensor Zt = Z.transpose(1, 2);
    Tensor half = Tensor::empty(Z.shape(), Z.dtype()), dA = Tensor::empty(Z.shape(), Z.dtype());
    matmul_into(half, Zt, dZ);
    matmul_into(dA, half, Zt, -1);
    slots[0].take(dA);
  });
}

Variable diagonal(int64_t n, double value, DType dtype) {
  Tensor out = Tensor::zeros({n, n}, dtype);
  out.reshape({n * n}).slice(0, 0, n * n, n + 1).fill(value);
  return Variable(out);
}

class Gaussian final : public Variant {
 public:
  Gaussian(const nn::Scope& scope_, const Config& config)
      : Variant(scope_, config),
        sigma_(config.options.get_double("sigma", 1, 1e-6, 1e6)),
        landmarks_(config.options.get_int("landmarks", 0, 0, 1 << 16)),
        normalized_(config.options.get_bool("normalized", landmarks_ == 0)) {
    Traits& traits = mutable_traits();
    traits.averages = normalized_;
    if (!normalized_) traits.summary = "attention with the Gaussian kernel, not normalised";
    if (!landmarks_) {
      dropout_ = read_dropout(config);
      return;
    }
    refuse_dropout(config, config.name);
    const Options& o = config.options;
    o.require(landmarks_ % 2 == 0, "landmarks", "half are queries, half are keys: even is wanted");
    o.require(!normalized_, "normalized",
              "row sums of an approximation can vanish; landmarks want false");
    gamma_ = o.get_double("gamma", 0.1, 0);
    iterative_ = o.get_choice("inverse", "iterative", {"iterative", "exact"}) == "iterative";
    if (iterative_) iterations_ = o.get_int("inverse_iterations", 6, 0, 1000);
    redraw_interval_ = o.get_int("redraw_interval", 1, 0);
    random_state_.emplace(scope("random_state"), state_tensor(init_random().fork("landmarks")));
    redraws_.emplace(scope("redraws"), Tensor::zeros({}, DType::i64));
    steps_.emplace(scope("steps"), Tensor::zeros({}, DType::i64));

    traits.summary = "Gaussian kernel attention through random rows of [Q; K]";
    traits.random = true;
    traits.positional = true;  // which tokens are drawn is a matter of their places
    traits.any_mask = false;
    traits.causal = traits.decodes = false;
    traits.causal_reason = landmarks_know_the_future;
    traits.time = "N d D + d^3";
    traits.memory = "N d";
    traits.state = "redraws, steps, random_state";
    check<ConfigError>(!config.causal, config.name,
                       ": causal attention is impossible: ", landmarks_know_the_future);
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(),
                              {.scale = scale(), .distance = true, .normalized = normalized_});
  }

  Cost cost(int64_t queries, int64_t keys) const override {
    const double N = static_cast<double>(queries), M = static_cast<double>(keys);
    const double D = static_cast<double>(config().head_dim);
    const double heads = static_cast<double>(config().heads);
    double flops = 4 * N * M * D + 6 * N * M, numbers = 2 * N * M;
    if (landmarks_) {
      const double d = static_cast<double>(landmarks_);
      const double solve = static_cast<double>(iterative_ ? 8 * iterations_ : 30);
      flops = (N + M + d) * d * (2 * D + 6) + solve * d * d * d + 2 * d * D * (N + M + d);
      numbers = (N + M) * d + 4 * d * d;
    }
    return {heads * flops, heads * numbers * static_cast<double>(size_of(parameter_dtype()))};
  }

  std::optional<int64_t> rank(int64_t tokens) const override {
    if (!landmarks_ || landmarks_ >= tokens) return {};
    return landmarks_;
  }

  std::string algorithm(int64_t tokens) const override {
    if (!landmarks_ || landmarks_ / 2 < tokens) return {};
    return concat_message("all rows: ", tokens, " tokens are at most ", landmarks_ / 2,
                          " landmarks of each kind");
  }

 private:
  static constexpr const char* landmarks_know_the_future =
      "landmarks are drawn among all tokens, and every weight depends on them";

  double scale() const {
    return 1 / (sigma_ * sigma_ * std::sqrt(static_cast<double>(config().head_dim)));
  }

  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass& pass) override {
    if (landmarks_) return through_landmarks(q, k, v, mask);
    const Variable Q = transpose(q, 1, 2), K = transpose(k, 1, 2), V = transpose(v, 1, 2);
    // Of a normalised row the query's own norm cancels.
    Variable s = normalized_
                     ? affine(matmul(Q, transpose(K, 2, 3)) - transpose(norms(K), 2, 3), scale())
                     : distances(Q, K, scale());
    if (mask.bias.defined()) s = s + mask.bias;
    s = masked_scores(s, config().causal, mask.lengths);
    if (mask.keep.defined()) s = masked_scores(mask.keep, s);
    Variable C = normalized_ ? softmax(s) : exp(s);
    if (pass.training && dropout_ > 0) C = dropout(C, dropout_, pass.random.fork(full_name()));
    return transpose(matmul(C, V), 1, 2);
  }

  // Which of n rows are landmarks, in order: the same for every sample of that length.
  std::vector<int32_t> drawn(const std::string& of, int64_t n) const {
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    const int64_t count = landmarks_ / 2;
    if (n <= count) return rows;
    RandomStream random(generator_of(random_state_->value())
                            .fork(static_cast<uint64_t>(*redraws_->value().data<int64_t>()))
                            .fork(of)
                            .fork(static_cast<uint64_t>(n)));
    for (int64_t i = 0; i < count; ++i)
      std::swap(rows[i], rows[i + static_cast<int64_t>(random.below(n - i))]);
    rows.resize(count);
    std::sort(rows.begin(), rows.end());
    return rows;
  }

  // Rows of x (H, n, D).
  static Variable rows_of(const Variable& x, const std::vector<int32_t>& rows) {
    const auto count = static_cast<int64_t>(rows.size());
    const Tensor index = Tensor::from(rows, {1, count, 1});
    return gather(x, 1, index.expand({x.size(0), count, x.size(2)}).contiguous());
  }

  // Sample by sample, of its real tokens alone.
  Variable through_landmarks(const Variable& q, const Variable& k, const Variable& v,
                             const Mask& mask) const {
    Variables samples;
    for (int64_t b = 0; b < q.size(0); ++b) {
      const int64_t n = mask.lengths.defined() ? mask.lengths.data<int32_t>()[b] : q.size(1);
      const int64_t m = mask.lengths.defined() ? n : k.size(1), padding = q.size(1) - n;
      const auto heads = [&](const Variable& x, int64_t length) {  // (H, length, D)
        return transpose(slice(select(x, 0, b), 0, 0, length), 0, 1);
      };
      Variables parts;
      if (n > 0)
        parts.push_back(transpose(one_sample(heads(q, n), heads(k, m), heads(v, m)), 0, 1));
      // Its zeros, which keep an empty sequence a part of the graph.
      if (padding > 0) parts.push_back(slice(select(q, 0, b), 0, n, n + padding));
      samples.push_back(concat(parts, 0));
    }
    return stack(samples, 0);
  }

  // q (H, n, D), k and v (H, m, D)
  Variable one_sample(const Variable& q, const Variable& k, const Variable& v) const {
    const Variable L = concat({rows_of(q, drawn("queries", q.size(1))),  // (H, d, D)
                               rows_of(k, drawn("keys", k.size(1)))},
                              1);
    const auto kernel = [&](const Variable& x, const Variable& y) {
      return exp(distances(x, y, scale()));
    };
    const int64_t d = L.size(1);
    const Variable A = kernel(L, L) + diagonal(d, gamma_, q.dtype());
    const Variable mixed = matmul(kernel(L, k), v);  // (H, d, D)
    if (!iterative_) return matmul(kernel(q, L), matmul(inverse(A), mixed));
    const Variable one(Tensor::scalar(1, q.dtype()));
    const Variable S = one / sqrt(sum(A, {2}, true));  // (H, d, 1)
    const Variable M = S * A * transpose(S, 1, 2);
    const Variable I = diagonal(d, 1, q.dtype());
    Variable Z = I;
    for (int64_t i = 0; i < iterations_; ++i) {
      const Variable MZ = matmul(M, Z);
      Z = matmul(Z, 13 * I - matmul(MZ, 15 * I - matmul(MZ, 7 * I - MZ)), 0.25);
    }
    return matmul(kernel(q, L), S * matmul(Z, S * mixed));
  }

  void on_step() override {
    if (!landmarks_) return;
    const int64_t step = ++*steps_->mutable_value().data<int64_t>();
    if (redraw_interval_ > 0 && step % redraw_interval_ == 0)
      ++*redraws_->mutable_value().data<int64_t>();
  }

  double sigma_, dropout_ = 0, gamma_ = 0;
  int64_t landmarks_;
  bool normalized_, iterative_ = true;
  int64_t iterations_ = 0, redraw_interval_ = 0;
  std::optional<nn::Buffer> random_state_, redraws_, steps_;
};

}  // namespace

Registration gaussian_variant() {
  return {{.summary = "attention with the Gaussian kernel, normalised",
           .any_mask = true,
           .causal = true,
           .decodes = true,
           .time = "N M D",
           .memory = "N M",
           .state = "-",
           .paper = "Chen et al. 2021, arXiv 2111.00035"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Gaussian>(scope, config);
          },
          {{},
           {{"sigma", 0.7}, {"normalized", false}},
           {{"landmarks", 8}},
           {{"landmarks", 8}, {"inverse", "exact"}, {"redraw_interval", 2}}}};
}

}  // namespace longhand::attention
