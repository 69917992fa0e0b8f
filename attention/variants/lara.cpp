// LARA: randomised attention by importance sampling. Zheng et al. 2022 (arXiv 2204.04667). With
// x = D^(-1/4) q, y = D^(-1/4) k and ξ(y, ω) = exp(ω·y - |y|²/2), softmax attention is the mean
// over the density p_i(ω) ∝ N(ω; 0, I) ξ(x_i, ω) Σ_j ξ(y_j, ω) of
//
//   f(ω) = Σ_j ξ(y_j, ω) v_j / Σ_j ξ(y_j, ω)
//
// (eq. 8-9). It is estimated from samples of C densities N(μ_c, I), the same for all queries, with
// self-normalised weights (eq. 14-15):
//
//   O_i = Σ_c w_ic f(ω_c) / Σ_c w_ic,   w_ic = α_ic(ω_c) N(ω_c; 0, I) ξ(x_i, ω_c) Σ_j ξ(y_j, ω_c)
//                                              / N(ω_c; μ_c, I)
//   μ_c = x̄_c + ȳ_c,   the means of the queries and keys of segment c
//
//   balance   α_ic = N(ω_c; μ_c, I) / Σ_c' N(ω_c; μ_c', I)
//   query     the same plus t_ic - 1/C with t_i = softmax_c(x_i·x̄_c), but at least 1e-8: samples from
//             segments whose queries are like query i count more
//
// Training passes draw ω_c from N(μ_c, I); others use ω_c = μ_c, so that nothing is random.
#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/bases/half_square.h"
#include "longhand/attention/bases/landmarks.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

constexpr double least_weight = 1e-8;  // of α

struct LaraOptions {
  int64_t landmarks = 64, samples = 1;
  std::string weights = "query";

  void describe(OptionVisitor& v) {
    v.integer("landmarks", landmarks, {1, 1 << 16}, "number C of densities, one for each segment");
    v.integer(
        "samples", samples, {0, 1 << 16},
        "number of samples of each density in training passes; 0: its mean, as in evaluation");
    v.choice("weights", weights, {"query", "balance"},
             "weights of the densities: as they suit each query, or the balance heuristic for all");
  }
  Capabilities capabilities() const {
    return {.separate_queries = false,
            .positional = true,
            .causal_reason = "landmarks average future tokens",
            .cross_lengths = false,
            .needs = Needs::heads,
            .time = "N C D",
            .memory = "N C"};
  }
};

// log Σ e^x along the last axis, which is kept; its largest element must be finite.
Variable log_sum_exp(const Variable& x) {
  const Variable largest = max(x, -1, true).detach();
  return log(sum(exp(x - largest), {-1}, true)) + largest;
}

Variable transposed(const Variable& x) { return transpose(x, -2, -1); }

class Lara final : public Variant {
 public:
  Lara(const nn::Scope& scope_, const Config& config, const LaraOptions& options)
      : Variant(scope_, config), options_(options) {}

  // Counts the products with the samples; evaluation has one for each density. The scores of keys
  // are recomputed for the gradients.
  Work work(int64_t queries, int64_t) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, queries);
    const double C = std::min(static_cast<double>(options_.landmarks), N),
                 products = options_.weights == "query" ? 5 : 4;
    return H * Work{{products * 2 * N * C * D, 3 * N * C},
                    {products * 4 * N * C * D + 2 * N * C * D, N * C},
                    bytes * (products - 1) * N * C};
  }
  int64_t rank(int64_t) const override { return options_.landmarks; }
  std::string advice(int64_t tokens) const override {
    if (4 * options_.landmarks < tokens) return {};
    return concat_message("attention.landmarks = ", options_.landmarks, " for at most ", tokens,
                          " tokens takes the time of softmax attention or more; reduce it");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t N = inputs.q.size(1), D = inputs.q.size(3);
    const int64_t C = std::min(options_.landmarks, N);
    // An empty sample has one landmark and one key, which are 0.
    const std::vector<int32_t> lengths = sample_lengths(mask.lengths, N),
                               counts = landmark_counts(lengths, C);
    const Tensor keys = mask.lengths.defined()
                            ? Tensor::from(landmark_counts(lengths, N), mask.lengths.shape())
                            : Tensor();
    const Tensor landmarks = Tensor::from(counts, {static_cast<int64_t>(counts.size())});
    const double scale = std::pow(static_cast<double>(D), -0.25);
    const auto means = [&](const Variable& x) {
      return affine(transpose(segment_means(x, lengths, counts, C), 1, 2), scale);
    };
    const Variable Q = transpose(inputs.q, 1, 2);                            // x = scale q
    const Variable x_mean = means(inputs.q), mu = x_mean + means(inputs.k);  // (B, H, C, D)
    const bool drawn = pass.training && options_.samples > 0;
    const auto repeated = [&](const Variable& x, int axis) {
      return drawn && options_.samples > 1
                 ? concat(Variables(static_cast<size_t>(options_.samples), x), axis)
                 : x;
    };
    const Variable centre = repeated(mu, 2);
    Variable W = centre;  // the samples (B, H, S, D)
    if (drawn) W = W + Variable(training_noise(W.shape(), 1, W.dtype(), pass));

    // With scores log ξ(y_j, ω_s) and Y = scale K.
    const SoftmaxAttentionResult of_keys = softmax_attention_with_sums(
        transpose(W, 1, 2), inputs.k, inputs.v,
        {.scale = scale,
         .key_lengths = keys,
         .key_bias = affine(squeeze(half_square(inputs.k, scale), 3), -1)});
    const Variable f = transpose(of_keys.out, 1, 2);  // (B, H, S, D)
    // log N(ω_s; μ_c, I) / N(ω_s; 0, I), without the landmarks that a sample does not have.
    const Tensor real = real_tokens(landmarks, C).permute({0, 2, 3, 1});  // (B, 1, 1, C)
    const bool all_real = !mask.lengths.defined();
    const auto of_real = [&](const Tensor& keep, const Variable& x) {
      return all_real ? x : masked_scores(keep, x);
    };
    const Variable densities =
        of_real(real, matmul(W, transposed(mu)) - transposed(half_square(mu, 1)));
    const Variable mixture = log_sum_exp(densities);  // (B, H, S, 1)

    Variable weights = matmul(Q, transposed(W), scale);  // log ξ(x_i, ω_s) up to terms that cancel
    Variable of_samples = unsqueeze(of_keys.log_sums, 3);
    if (options_.weights == "balance") {
      of_samples = of_samples - mixture;
    } else {
      const Variable own = sum(W * centre, {-1}, true) - half_square(centre, 1);
      const Variable t = softmax(of_real(real, matmul(Q, transposed(x_mean), scale)));
      // The ratio of a density to a mixture that contains it is at most 1: enforced despite
      // rounding, and for landmarks that the sample does not have.
      const Variable ratio = exp(-relu(mixture - own));
      // log max(α, least), as log(relu(α - least) + least)
      const Variable above =
          repeated(t, 3) + (transposed(ratio) - (shares(counts, t) + least_weight));
      weights = weights + log(relu(above), least_weight);
      of_samples = of_samples - own;
    }
    const int64_t B = real.size(0), rounds = W.size(2) / C;
    const Tensor sampled =
        real.expand({B, 1, rounds, C}).contiguous().reshape({B, 1, 1, rounds * C});
    weights = of_real(sampled, weights + transposed(of_samples));
    return transpose(matmul(softmax(weights), f), 1, 2);
  }

  // 1 / number of landmarks of each sample, (B or 1, 1, 1, 1).
  static Variable shares(const std::vector<int32_t>& counts, const Variable& like) {
    Tensor out = Tensor::empty({static_cast<int64_t>(counts.size()), 1, 1, 1}, DType::f64);
    std::transform(counts.begin(), counts.end(), out.data<double>(),
                   [](int32_t n) { return 1 / static_cast<double>(n); });
    return Variable(out.to(like.dtype()));
  }

  LaraOptions options_;
};

using namespace conformance;

// Self-normalised estimates of one mean from more and more samples of the same densities. If the
// noise had another scale than the densities in the weights, the error would not decrease.
void lara_rate(Findings& f) {
  const Case c = small_case(0.25, 21, 64, 16);
  rate(f, c, {4, 16, 64, 256, 1024}, "samples", 0.1, [&](int64_t samples) {
    const auto variant =
        make_variant("lara", {{"landmarks", 4}, {"weights", "balance"}, {"samples", samples}},
                     {.heads = 1, .dim = c.q.size(3), .max_length = c.q.size(1)});
    double squares = 0;
    constexpr int draws = 12;
    for (uint64_t i = 0; i < draws; ++i) {
      const nn::Pass pass{.training = true, .random = Generator(200 + i)};
      const Tensor out = forward(*variant, c.q, c.k, c.v, {}, pass);
      squares += std::pow(relative_error(out, c.exact), 2) / draws;
    }
    return std::sqrt(squares);
  });
}

// f(μ) = softmax_j(μ·y_j - |y_j|²/2) V, with μ and y = D^(-1/4) k.
void lara_one_landmark(Findings& f) {
  const Sample x;
  const double scale = std::pow(static_cast<double>(D), -0.25);
  const auto mean_of = [](const Tensor& t) { return mean(Variable(t), {1}, true); };
  const Variable mu = affine(mean_of(x.q) + mean_of(x.k), scale);  // (2, 1, H, D)
  const Variable y = affine(Variable(x.k), scale);
  const Variable logits = sum(mu * y, {3}) - affine(sum(square(y), {3}), 0.5);  // (2, N, H)
  const Variable p = transpose(softmax(transpose(logits, 1, 2)), 1, 2);
  const Tensor expected =
      broadcast_to(sum(unsqueeze(p, 3) * Variable(x.v), {1}, true), x.v.shape()).value();
  for (const char* const weights : {"query", "balance"}) {
    const auto variant = make_variant("lara", {{"landmarks", 1}, {"weights", weights}}, made());
    equal(f, weights, forward(*variant, x), expected, 1e-12);
  }
}

}  // namespace

Spec lara_variant() {
  return make_spec<LaraOptions, Lara>(
      {.summary = "softmax attention by importance sampling from densities of segments",
       .paper = "Zheng et al. 2022, arXiv 2204.04667",
       .cases = {{{"landmarks", 4}},
                 {{"landmarks", 4}, {"weights", "balance"}, {"samples", 3}},
                 {{"landmarks", 20}, {"samples", 0}}},
       .evidence = {
           {"rate",
            "with samples of the densities, errors decrease as samples^(-1/2) towards "
            "softmax attention",
            lara_rate},
           {"one-landmark", "one landmark gives all queries the result f(μ)", lara_one_landmark}}});
}

}  // namespace longhand::attention
