// Nyströmformer: softmax attention through m landmarks. Xiong et al. 2021 (arXiv 2102.03902), eq.
// 13 and 14. Landmarks Q̃, K̃ are m mixtures of the queries and keys; with τ = 1/sqrt(D)
//
//   F = softmax(τ Q K̃ᵀ) (N, m),   A = softmax(τ Q̃ K̃ᵀ) (m, m),   G = softmax(τ Q̃ Kᵀ) (m, N)
//   O = F Z (G V) + conv(V),   Z ≈ A⁺
//
// Landmarks are products W Q, W K with constant weights W (m, N):
//   mean     the mean of each of m segments, of equal length or the first shorter by 1
//   stride   the first token of each segment
//   random   m random tokens, the same for all sequences of one length
//   kmeans   the means of clusters of the queries and of the keys, for each head: Lloyd's algorithm
//            started from the segments
//   learned  no products: m parameters of each head for the queries, and m for the keys, as the
//            inducing points of Lee et al. 2019 (arXiv 1810.00825)
// and Z is
//   iterative   a few steps of  Z <- Z/4 (13 I - AZ (15 I - AZ (7 I - AZ)))
//               from Z = Aᵀ / (max column sum of A), as row sums of A are 1; for each matrix
//               separately, so that a sample does not depend on its batch. Razavi et al. 2014
//   svd         A⁺
//   ridge       (AᵀA + εI)⁻¹ Aᵀ. A is not symmetric: A + εI may be singular for any ε
//
// Only the real tokens of each sample enter. A sample of n < m tokens has n landmarks; the other
// rows and columns of A and Z are 0. A sample of at most exact_below real tokens gets exact softmax
// attention. The convolution along the tokens has one filter per head.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/bases/landmarks.h"
#include "longhand/attention/bases/latest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/joined_softmax.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/init.h"
#include "longhand/nn/short_conv.h"

namespace longhand::attention {
namespace {

// Singular values of an m x m matrix below this, relative to the largest, are rounding errors.
double noise(int64_t m, DType dtype) {
  const double eps = dtype == DType::f32 ? std::numeric_limits<float>::epsilon()
                                         : std::numeric_limits<double>::epsilon();
  return static_cast<double>(m) * eps;
}

Variable iterated_inverse(const Variable& A, int64_t iterations) {
  const Variable column_sums = sum(A, {-2}, true);
  const Variable Z = transpose(A, -2, -1) / max(column_sums, -1, true);
  return iterative_pinv(A, Z, iterations);
}

struct NystromOptions {
  int64_t landmarks = 64, kmeans_steps = 3, pinv_iterations = 6, exact_below = 64, conv_kernel = 0;
  std::string landmark_kind = "mean", pinv = "iterative";
  double ridge = 1e-3;

  void describe(OptionVisitor& v) {
    v.integer("landmarks", landmarks, {1, 1 << 16}, "number of landmarks m");
    v.choice("landmark_kind", landmark_kind, {"mean", "stride", "random", "kmeans", "learned"},
             "how landmarks are chosen: means or first tokens of m segments, m random tokens, "
             "cluster means, or parameters");
    v.when(landmark_kind == "kmeans", "landmark_kind = \"kmeans\"", [&] {
      v.integer("kmeans_steps", kmeans_steps, {0, 1000},
                "number of iterations of Lloyd's algorithm, starting from the segments");
    });
    v.choice("pinv", pinv, {"iterative", "svd", "ridge"},
             "how the pseudo-inverse of A is computed");
    v.when(pinv == "iterative", "pinv = \"iterative\"", [&] {
      v.integer("pinv_iterations", pinv_iterations, {0, 1000}, "number of iterations");
    });
    v.when(pinv == "ridge", "pinv = \"ridge\"",
           [&] { v.number("ridge", ridge, NumberRange::above(0), "ε in (AᵀA + ε I)⁻¹ Aᵀ"); });
    exact_below = landmark_kind == "learned" ? 0 : landmarks;
    v.integer("exact_below", exact_below, {0},
              "sequences of at most this many tokens use exact softmax attention; 0: none",
              "landmarks; 0 if these are learned");
    v.integer("conv_kernel", conv_kernel, {0, 1 << 16},
              "odd width of a convolution over the tokens of V, with one filter per head; 0: none");
    v.require(conv_kernel == 0 || conv_kernel % 2 == 1, "conv_kernel",
              "expected an odd number, or 0 for no convolution");
  }

  Capabilities capabilities() const {
    const bool drawn = landmark_kind == "random", learned = landmark_kind == "learned";
    return {.random = drawn,
            .averages = false,
            .separate_queries = learned,
            .positional = !learned || conv_kernel > 0,
            .signed_weights = pinv == "svd",  // and large if A is nearly singular
            .causal_reason = "landmarks average future tokens",
            .cross_lengths = false,
            // The clusters of a head depend on all its tokens.
            .needs = landmark_kind == "kmeans" ? Needs::heads : Needs::landmarks,
            .time = "N m D + m^3",
            .memory = "m (m + D) + N",
            .state = drawn ? "random_state" : "-"};
  }
};

class Nystrom final : public Variant {
 public:
  Nystrom(const nn::Scope& scope_, const Config& config, const NystromOptions& options)
      : Variant(scope_, config), options_(options) {
    if (options_.landmark_kind == "random")
      random_state_.emplace(scope("random_state"), state_tensor(init_random().fork("landmarks")));
    if (options_.landmark_kind == "learned") {
      const Shape shape{config.heads, options_.landmarks, config.head_dim};
      query_landmarks_.emplace(scope("query_landmarks"), shape, nn::init::normal(1));
      key_landmarks_.emplace(scope("key_landmarks"), shape, nn::init::normal(1));
    }
    if (const int64_t width = options.conv_kernel)
      conv_.emplace(scope("conv"), Shape{config.heads, width},
                    nn::init::uniform(1 / std::sqrt(static_cast<double>(width))));
  }

  std::string algorithm(int64_t tokens) const override {
    if (tokens > options_.exact_below) return {};
    return concat_message("softmax: ", tokens, " tokens are at most ", options_.exact_below,
                          options_.exact_below == options_.landmarks ? " landmarks" : "");
  }

  int64_t rank(int64_t tokens) const override {
    return conv_ || tokens <= options_.exact_below ? tokens : options_.landmarks;
  }
  // Counts F, G, G V and F Z (G V), the iterations for Z, and the convolution; the backward pass
  // has two products for each, and computes the exponentials of F and G again.
  Work work(int64_t queries, int64_t) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, queries);
    const double m = static_cast<double>(count_of(queries)),
                 conv = conv_ ? 2 * N * D * static_cast<double>(conv_->size(1)) : 0;
    if (queries <= options_.exact_below)
      return H * (softmax_work(N * N, D, bytes * N) + Work{{conv}, {2 * conv}});
    const double inverse =
        options_.pinv == "iterative" ? 8 * static_cast<double>(options_.pinv_iterations) : 26;
    const double flops = 8 * N * m * D + inverse * m * m * m + conv;
    const double exponentials = 2 * N * m + m * m;
    double numbers = N + 4 * m * m + 4 * m * D;
    const std::string& kind = options_.landmark_kind;
    if (kind != "mean" && kind != "learned") numbers += (kind == "kmeans" ? 2 : 1 / H) * N * m;
    const double again = 4 * N * m * D;  // both kernels, for gradients
    return H * Work{{flops, exponentials}, {2 * flops + again, exponentials}, bytes * numbers};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3);
    const int64_t all_tokens = pass.all_tokens(N);
    // Without padding all samples have the same segments: one row represents them.
    const std::vector<int32_t> lengths = sample_lengths(mask.lengths, all_tokens);
    Tensor few = Tensor::empty({static_cast<int64_t>(lengths.size()), 1, 1, 1}, DType::u8);
    int64_t exact = 0;
    for (size_t b = 0; b < lengths.size(); ++b)
      exact += few.data<uint8_t>()[b] = lengths[b] <= options_.exact_below;
    const bool all = exact == static_cast<int64_t>(lengths.size());

    Variable out;
    if (!all) out = through_landmarks(inputs, mask, lengths, pass);
    if (exact) {
      // Later tokens are padding in these samples; the results of the others are not used.
      const int64_t n = std::clamp<int64_t>(options_.exact_below, 1, all_tokens);
      const Variable queries = pass.join ? q : slice(q, 1, 0, n);
      const auto [keys, values] = first_tokens(inputs, n, pass);
      const Variable first = softmax_attention(queries, keys, values,
                                               {.key_lengths = lengths_from(mask.lengths, 0, n)});
      const Variable padded_first = padded(first, 0, N - queries.size(1));
      out = all ? padded_first : where(few, padded_first, out);
    }
    if (conv_) {
      const Variable filters = heads_of_pass(*conv_, 0, H, pass);
      const Variable filtered = nn::conv_of_pass(reshape(v, {B, N, H * D}), filters, {}, pass);
      out = out + reshape(filtered, {B, N, H, D});
    }
    return out;
  }

  // Returns softmax(τ q kᵀ), (B, H, N, M), for q (B, H, N, D) and k (B, H, M, D), over the first
  // lengths[b] keys.
  Variable weights(const Variable& q, const Variable& k, const Tensor& lengths) const {
    const Variable scores = matmul(q, transpose(k, 2, 3), config().softmax_scale());
    return softmax(masked_scores(scores, false, lengths));
  }

  // The first n keys and values of all sequences: each part adds those that it has.
  static std::pair<Variable, Variable> first_tokens(const Inputs& in, int64_t n,
                                                    const nn::Pass& pass) {
    if (!pass.join) return {slice(in.k, 1, 0, n), slice(in.v, 1, 0, n)};
    const int64_t begin = std::min(pass.tokens.first, n), own = std::min(in.k.size(1), n - begin);
    const Variable both = slice(concat({in.k, in.v}, 2), 1, 0, own);
    return halves(pass.join->sum(padded(both, begin, n - begin - own)));
  }

  // Splits x (B, N, 2 H, …) into two of H heads.
  static std::pair<Variable, Variable> halves(const Variable& x) {
    const int64_t H = x.size(2) / 2;
    return {slice(x, 2, 0, H), slice(x, 2, H, 2 * H)};
  }

  // The number of landmarks of a sequence.
  int64_t count_of(int64_t tokens) const {
    return query_landmarks_ ? options_.landmarks : std::min(options_.landmarks, tokens);
  }

  Variable through_landmarks(const Inputs& inputs, const Mask& mask,
                             const std::vector<int32_t>& lengths, const nn::Pass& pass) {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t N = pass.all_tokens(q.size(1)), m = count_of(N);
    // An empty sample has one landmark, which is 0.
    const std::vector<int32_t> counts = landmark_counts(lengths, m);
    Tensor landmarks;  // landmarks of each sample, if not m for all
    if (!query_landmarks_ && *std::min_element(counts.begin(), counts.end()) < m)
      landmarks = Tensor::from(counts, {static_cast<int64_t>(counts.size())});

    // (B, m, H, D), or (1, m, H, D) if they are the same for all sequences.
    const auto parameters = [](const nn::Parameter& p) { return unsqueeze(transpose(p, 0, 1), 0); };
    Variable Qm, Km;
    if (query_landmarks_) {
      Qm = parameters(*query_landmarks_), Km = parameters(*key_landmarks_);
    } else if (pass.join) {
      std::tie(Qm, Km) = halves(landmarks_of(concat({q, k}, 2), lengths, counts, m, pass));
    } else {
      Qm = landmarks_of(q, lengths, counts, m, pass);
      Km = landmarks_of(k, lengths, counts, m, pass);
    }
    // In double precision for the SVD: the inverse of a nearly singular A amplifies its errors.
    const DType exact = options_.pinv == "svd" ? DType::f64 : q.dtype();
    Variable A =
        weights(cast(transpose(Qm, 1, 2), exact), cast(transpose(Km, 1, 2), exact), landmarks);
    if (landmarks) A = where(real_tokens(landmarks, m).transpose(1, 2), A, 0.0);
    const Variable inverse = options_.pinv == "svd" ? pinv(A, noise(m, q.dtype()))
                             : options_.pinv == "ridge"
                                 ? ridge_inverse(A, options_.ridge)
                                 : iterated_inverse(A, options_.pinv_iterations);
    first_.set({A.value().select(0, 0).clone(), inverse.value().select(0, 0).clone()});
    const Variable Z = cast(inverse, q.dtype());
    if (query_landmarks_) {
      const Shape all{q.size(0), m, q.size(2), q.size(3)};
      Qm = broadcast_to(Qm, all);
      Km = broadcast_to(Km, all);
    }
    const Tensor keys = lengths_from(mask.lengths, pass.tokens.first, k.size(1));
    const Variable GV =
        joined_softmax_attention(Qm, k, v, {.key_lengths = keys}, pass.join);  // (B, m, H, D)
    return softmax_attention(q, Km, transpose(matmul(Z, transpose(GV, 1, 2)), 1, 2),
                             {.key_lengths = landmarks});
  }

  // Returns the landmarks (B, m, H, D) of all tokens, of which the pass has x (B, n, H, D).
  Variable landmarks_of(const Variable& x, const std::vector<int32_t>& lengths,
                        const std::vector<int32_t>& counts, int64_t m, const nn::Pass& pass) const {
    const std::string& kind = options_.landmark_kind;
    if (kind == "mean" && !pass.join) return segment_means(x, lengths, counts, m);
    const int64_t first = pass.tokens.first, n = x.size(1);
    Tensor W;
    if (kind == "kmeans")
      W = cluster(x.value(), lengths, counts, m, options_.kmeans_steps, true).means;
    else if (kind == "mean")
      W = segment_weights(lengths, counts, m, first, n, x.dtype());
    else
      W = selection(lengths, counts, m, first, n, x.dtype());
    return sum_of_parts(transpose(matmul(Variable(W), transpose(x, 1, 2)), 1, 2), pass.join);
  }

  // Returns W (samples, 1, m, tokens), which selects single tokens out of those from `first` on.
  Tensor selection(const std::vector<int32_t>& lengths, const std::vector<int32_t>& counts,
                   int64_t m, int64_t first, int64_t tokens, DType dtype) const {
    Tensor W = Tensor::zeros({static_cast<int64_t>(lengths.size()), 1, m, tokens}, dtype);
    dispatch_float(dtype, [&]<class T>() {
      for (size_t b = 0; b < lengths.size(); ++b) {
        T* row = W.data<T>() + static_cast<int64_t>(b) * m * tokens;
        if (lengths[b] == 0) continue;
        const std::vector<int64_t> chosen =
            random_state_ ? draw(lengths[b], counts[b]) : segments(lengths[b], counts[b]);
        for (int64_t i = 0; i < counts[b]; ++i, row += tokens)
          if (const int64_t at = chosen[i] - first; at >= 0 && at < tokens) row[at] = 1;
      }
    });
    return W;
  }

  // Returns `count` of n tokens: those whose positions have the smallest random numbers.
  std::vector<int64_t> draw(int64_t n, int64_t count) const {
    const Generator generator = generator_of(random_state_->value());
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return generator.bits(static_cast<uint64_t>(a)) < generator.bits(static_cast<uint64_t>(b));
    });
    order.resize(count);
    std::sort(order.begin(), order.end());
    return order;
  }

  // pinv_residual: the largest |A Z A - A| / |A| (Frobenius norm) over the heads of the first
  // sample in the latest pass through landmarks.
  std::map<std::string, double> own_metrics() const override {
    const auto [first_A, first_Z] = first_.get();
    if (!first_A) return {};
    const Variable A(first_A);
    const Variable difference = matmul(matmul(A, Variable(first_Z)), A) - A;
    const Variable ratio = sum(square(difference), {1, 2}) / sum(square(A), {1, 2});
    return {{"pinv_residual", std::sqrt(max(ratio, 0).value().item())}};
  }

  NystromOptions options_;
  std::optional<nn::Buffer> random_state_;                        // (2) i64, generator state
  std::optional<nn::Parameter> query_landmarks_, key_landmarks_;  // (H, m, D)
  std::optional<nn::Parameter> conv_;                             // (H, conv_kernel)
  Latest<std::pair<Tensor, Tensor>> first_;                       // A and Z (H, m, m)
};

using namespace conformance;

void nystrom_limits(Findings& f) {
  const auto softmax = make_variant("softmax", {}, made());
  const auto with = [](const OptionSet& options) {
    return make_variant("nystrom", extended({{"landmarks", N}, {"exact_below", 0}}, options),
                        made());
  };
  // m = N: F = A = G = P, and P P⁺ P = P. Queries equal to keys, of norm 4, keep P far from
  // singular.
  Sample x;
  double* q = x.q.data<double>();
  for (int64_t row = 0; row < 2 * N * H; ++row, q += D) {
    const double norm = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    for (int64_t d = 0; d < D; ++d) q[d] *= 4 / norm;
  }
  x.k = x.q;
  equal(f, "m = N, pseudo-inverse by SVD and softmax", *with({{"pinv", "svd"}}), *softmax, 1e-9, x);
  const Tensor exact = forward(*softmax, x);
  near(f, "m = N, SVD and softmax", forward(*with({{"pinv", "svd"}}), x), exact, 1e-12);
  double before = 1e300;
  for (const int64_t iterations : {6, 10, 20}) {
    const double d = distance(forward(*with({{"pinv_iterations", iterations}}), x), exact);
    f.measured(iterations, " iterations to ", d);
    f.expect(d < before || d <= 1e-14, iterations, " iterations have the error ", d,
             ", fewer have ", before);
    before = d;
  }
  f.expect(before <= 1e-6, "after 20 iterations the result differs from softmax by ", before);
  const auto learned = with({{"pinv", "svd"}, {"landmark_kind", "learned"}});
  const Tensor tokens = one(x.q, 0, N), values = one(x.v, 0, N);
  const Tensor landmarks = tokens.squeeze(0).transpose(0, 1).contiguous();
  set(*learned, {{"query_landmarks", landmarks}, {"key_landmarks", landmarks}});
  equal(f, "learned landmarks at the tokens", forward(*learned, tokens, tokens, values),
        forward(*softmax, tokens, tokens, values), 1e-12);
  // Exact attention for few tokens is reported.
  f.expect(!make_variant("nystrom", {{"landmarks", N}}, made())->algorithm(N).empty() &&
               with({})->algorithm(N).empty(),
           "algorithm() does not distinguish exact attention from landmarks");
}

}  // namespace

Spec nystrom_variant() {
  return make_spec<NystromOptions, Nystrom>(
      {.summary = "softmax attention through m landmarks; exact for at most m tokens",
       .paper = "Xiong et al. 2021, arXiv 2102.03902",
       .cases =
           {{{"landmarks", 4}},
            {{"landmarks", 4}, {"conv_kernel", 3}, {"pinv_iterations", 10}},
            {{"landmarks", 4}, {"landmark_kind", "stride"}, {"pinv", "svd"}},
            {{"landmarks", 4}, {"landmark_kind", "random"}, {"pinv", "ridge"}, {"ridge", 0.1}},
            {{"landmarks", 4}, {"landmark_kind", "kmeans"}, {"exact_below", 0}},
            {{"landmarks", 4}, {"landmark_kind", "learned"}, {"pinv", "ridge"}, {"ridge", 0.1}}},
       .evidence = {
           {"limits",
            "m = N gives softmax, by SVD and after 20 iterations, also with learned landmarks "
            "set to the tokens; exact attention is reported",
            nystrom_limits}}});
}

}  // namespace longhand::attention
