// Skyformer: Gaussian kernel attention through d landmarks, its Nyström approximation. Chen et al.
// 2021 (arXiv 2111.00035). With x̂ = D^(-1/4) x and κ(x, y) = exp(-|x̂ - ŷ|² / (2 sigma²)),
// landmarks L are rows of [Q; K] (half from each, drawn among the real tokens of each sample), and
//
//   O = C V,   C = κ(Q, L) (κ(L, L) + gamma I)^(-1) κ(L, K)
//
// which is κ(Q, K) (gaussian.cpp, not normalised) if gamma = 0 and all rows are landmarks. κ(L, L)
// is positive definite, unlike softmax scores. For the inverse, M = S (κ(L, L) + gamma I) S with
// S = diag(row sums)^(-1/2) has its eigenvalues in (0, 1], and
//
//   Z <- Z/4 (13 I - MZ (15 I - MZ (7 I - MZ)))   from Z = I
//
// converges to M^(-1); stopping early regularises.
#include <algorithm>
#include <vector>

#include "longhand/attention/bases/gaussian_kernel.h"
#include "longhand/attention/bases/landmarks.h"
#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/inverse.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

Variable diagonal(int64_t n, double value, DType dtype) {
  Tensor out = Tensor::zeros({n, n}, dtype);
  out.reshape({n * n}).slice(0, 0, n * n, n + 1).fill(value);
  return Variable(out);
}

struct SkyformerOptions {
  double sigma = 1, gamma = 0.1;
  int64_t landmarks = 64, inverse_iterations = 6, redraw_interval = 1;
  std::string inverse = "iterative";

  bool iterates() const { return inverse == "iterative"; }
  void describe(OptionVisitor& v) {
    v.number("sigma", sigma, {1e-6, 1e6}, "bandwidth of the Gaussian kernel of x / D^(1/4)");
    v.integer("landmarks", landmarks, {2, 1 << 16},
              "number of landmarks d, half of them queries and half keys");
    v.require(landmarks % 2 == 0, "landmarks",
              "expected an even number: half are queries, half are keys");
    v.number("gamma", gamma, {0}, "regularisation added to the diagonal of κ(L, L)");
    v.choice("inverse", inverse, {"iterative", "exact"},
             "how κ(L, L) + γ I is inverted: approximately, by iteration, or exactly");
    v.when(iterates(), "inverse = \"iterative\"", [&] {
      v.integer("inverse_iterations", inverse_iterations, {0, 1000}, "number of iterations");
    });
    v.integer("redraw_interval", redraw_interval, {0},
              "optimizer steps between redraws of the landmarks; 0: never");
  }

  Capabilities capabilities() const {
    return {
        .random = true,
        .averages = false,
        .positional = true,  // landmarks are drawn by position
        .causal_reason = "landmarks are drawn among all tokens, and every weight depends on them",
        .needs = Needs::heads,
        .time = "N d D + d^3",
        .memory = "N",
        .state = "redraws, steps, random_state"};
  }
};

class Skyformer final : public Variant {
 public:
  Skyformer(const nn::Scope& scope_, const Config& config, const SkyformerOptions& options)
      : Variant(scope_, config),
        options_(options),
        redraws_([this](const std::string& name) { return scope(name); },
                 init_random().fork("landmarks"), options.redraw_interval) {}

  // Counts κ(Q, L), κ(L, K) and κ(L, L), the iterations for the inverse, and products with V. The
  // backward pass computes the kernels again.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double d = static_cast<double>(options_.landmarks),
                 solve = static_cast<double>(options_.iterates() ? 8 * options_.inverse_iterations
                                                                 : 30);
    const double flops = (N + M + d) * 4 * d * D, inversion = solve * d * d * d;
    return H * Work{{flops + inversion, (N + M + d) * d},
                    {2.5 * flops + 2 * inversion, (N + M) * d},
                    (N + M) * D * bytes};
  }

  int64_t rank(int64_t) const override { return options_.landmarks; }

  std::string algorithm(int64_t tokens) const override {
    if (options_.landmarks / 2 < tokens) return {};
    return concat_message("all rows: ", tokens, " tokens are at most ", options_.landmarks / 2,
                          " landmarks of each kind");
  }

 private:
  double scale() const { return gaussian_scale(options_.sigma, config().head_dim); }

  // Computes samples of different lengths separately, from their real tokens only.
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const std::vector<int32_t> lengths = sample_lengths(mask.lengths, q.size(1));
    if (*std::min_element(lengths.begin(), lengths.end()) == q.size(1))
      return whole_samples(q, k, v);
    Variables samples;
    for (int64_t b = 0; b < q.size(0); ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)], padding = q.size(1) - n;
      const auto real = [&](const Variable& x) {  // (1, n, H, D)
        return slice(slice(x, 0, b, b + 1), 1, 0, n);
      };
      Variables parts;
      if (n > 0) parts.push_back(whole_samples(real(q), real(k), real(v)));
      // q is 0 at padding; taking it from there keeps an empty sequence in the graph.
      if (padding > 0) parts.push_back(slice(slice(q, 0, b, b + 1), 1, n, n + padding));
      samples.push_back(concat(parts, 1));
    }
    return concat(samples, 0);
  }

  // Returns which of n rows are landmarks, in ascending order; the same for all samples of n
  // tokens.
  std::vector<int32_t> drawn(const std::string& of, int64_t n) const {
    RandomStream random(redraws_.generator().fork(of).fork(static_cast<uint64_t>(n)));
    const auto rows = draw_subset(random, n, std::min(n, options_.landmarks / 2));
    return {rows.begin(), rows.end()};
  }

  // Returns the given rows of x (B, n, H, D).
  static Variable rows_of(const Variable& x, const std::vector<int32_t>& rows) {
    const auto count = static_cast<int64_t>(rows.size());
    const Tensor index = Tensor::from(rows, {1, count, 1, 1});
    return gather(x, 1, index.expand({x.size(0), count, x.size(2), x.size(3)}));
  }

  // q (B, n, H, D), k and v (B, m, H, D), without padding
  Variable whole_samples(const Variable& q, const Variable& k, const Variable& v) const {
    const Variable L = concat({rows_of(q, drawn("queries", q.size(1))),  // (B, d, H, D)
                               rows_of(k, drawn("keys", k.size(1)))},
                              1);
    const Variable rows = transpose(L, 1, 2);
    const int64_t d = L.size(1);
    const Variable A = exp(gaussian_exponents(rows, rows, scale())) +
                       diagonal(d, options_.gamma, q.dtype());  // (B, H, d, d)
    const auto sums = [&](const Variable& x, const Variable& y, const Variable& values) {
      return gaussian_attention(x, y, values, {.scale = scale()}, false);
    };
    const Variable mixed = transpose(sums(L, k, v), 1, 2);  // (B, H, d, D)
    return sums(q, L, transpose(options_.iterates() ? iterate(A, mixed) : solve(A, mixed), 1, 2));
  }

  static Variable solve(const Variable& A, const Variable& x) {
    const int64_t d = A.size(3);
    const Variable Z = inverse(reshape(A, {A.size(0) * A.size(1), d, d}));
    return matmul(reshape(Z, A.shape()), x);
  }
  Variable iterate(const Variable& A, const Variable& x) const {
    const Variable one(Tensor::scalar(1, A.dtype()));
    const Variable S = one / sqrt(sum(A, {3}, true));  // (B, H, d, 1)
    const Variable I = broadcast_to(diagonal(A.size(3), 1, A.dtype()), A.shape());
    const Variable Z = iterative_pinv(S * A * transpose(S, 2, 3), I, options_.inverse_iterations);
    return S * matmul(Z, S * x);
  }

  void on_step() override { redraws_.step(); }

  SkyformerOptions options_;
  Redraws redraws_;
};

using namespace conformance;

// If all 2N rows are landmarks and gamma is 0, the approximation is exact.
void skyformer_limits(Findings& f) {
  equal(f, "all landmarks, gamma = 0 and the exact kernel",
        *make_variant("skyformer", {{"landmarks", 2 * N}, {"gamma", 0.0}, {"inverse", "exact"}},
                      made()),
        *make_variant("gaussian", {{"normalized", false}}, made()), 1e-7);
}

}  // namespace

Spec skyformer_variant() {
  return make_spec<SkyformerOptions, Skyformer>(
      {.summary = "Gaussian kernel attention through random rows of [Q; K]",
       .paper = "Chen et al. 2021, arXiv 2111.00035",
       .cases = {{{"landmarks", 8}},
                 {{"landmarks", 8}, {"inverse", "exact"}, {"redraw_interval", 2}, {"sigma", 1.5}}},
       .evidence = {{"limits", "all rows as landmarks give the exact kernel", skyformer_limits}}});
}

}  // namespace longhand::attention
