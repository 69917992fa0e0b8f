// Error: how far variants are from exact softmax attention on given queries, keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/attention/registry.h"
#include "longhand/core/statistics.h"

namespace longhand::attention::analysis {

/// A variant with options.
struct Candidate {
  std::string variant;
  OptionSet options{};
  int64_t size = 0;  // number of features, landmarks or slots, for tables; 0: none
};

/// Constructs a candidate in f64 for inputs of this shape. Throws ConfigError for unknown options.
std::unique_ptr<Variant> make_candidate(const Candidate& candidate, const HeadInputs& in,
                                        bool causal, uint64_t seed);

/// Reports progress: `done` of `all` parts.
using OnProgress = std::function<void(int64_t done, int64_t all)>;

struct ErrorOptions {
  bool causal = false;
  int64_t draws = 8;  // of the random numbers of each variant that has any
  uint64_t seed = 0;
  OnProgress on_progress{};
};

/// Relative errors |approximate - exact| / |exact| (Frobenius norms): estimates over the inputs, or
/// values of all inputs. Exact are the definition's result O, its weights P and the gradients of
/// <O, G> for a random G. Errors of a random variant are root mean squares over its draws.
template <class T>
struct Errors {
  T output{}, weights{}, dq{}, dk{}, dv{};
  /// |output error|² = bias² + variance, relative to |exact|²: bias of the mean of all draws,
  /// variance of a single draw. Both are unbiased estimates, so bias² may be below 0. The variance
  /// of a variant without random numbers is 0.
  T bias_squared{}, variance{};
  /// The least possible error of weights of this rank: (Σ_{i > rank} σ_i² / Σ σ_i²)^(1/2) over the
  /// singular values of P (Eckart & Young 1936).
  T svd_floor{};
};
struct VariantError : Errors<Estimate> {
  std::string algorithm{};  // Variant::algorithm(): "softmax: …" if it is exact at this length
  int64_t draws = 1;
  int64_t rank = 0;  // a bound on the rank of the weights: Variant::rank(), at most the tokens
};

/// The errors of each candidate, constructed with one head of the inputs' D for every head in
/// `inputs`, preceded for comparison by "uniform": equal weights for all visible keys. Throws
/// ConfigError for a variant that cannot be constructed, is not causal if required, or has no
/// weights. Parameters, such as the projections of linformer, have their initial values.
std::vector<VariantError> errors(const std::vector<HeadInputs>& inputs,
                                 const std::vector<Candidate>& candidates,
                                 const ErrorOptions& options = {});

/// The errors of the variant of a trained model on the inputs of its layer: one entry per head,
/// with means over sequences. Random numbers are not redrawn, so there is one draw.
std::vector<VariantError> errors_of_layer(Variant& variant, const LayerInputs& layer, bool causal,
                                          uint64_t seed = 0);

/// The errors of exact attention truncated to each rank r, P_r V: of its weights and its result.
std::vector<VariantError> rank_errors(const std::vector<HeadInputs>& inputs,
                                      const std::vector<int64_t>& ranks, bool causal = false);

/// The iteration of nystrom for A⁺, A = softmax(Q̃ K̃ᵀ / sqrt(D)) of segment means Q̃ and K̃, from
/// Z = Aᵀ / (|A|_1 |A|_inf), after `iteration` steps (0: at the start).
struct InverseStep {
  int64_t iteration = 0;
  Estimate residual;  // |A Z A - A| / |A|, 0 for A⁺
  Estimate output;    // error of attention with Z in place of A⁺, relative to exact attention
};
struct InverseError {
  Estimate condition;  // log10 of the ratio of A's largest and smallest singular value
  /// The steps after which A's smallest singular value is inverted: it grows 3.25-fold per step, so
  /// ln(|A|_1 |A|_inf / σ_min²) / ln 3.25 + 3.
  Estimate expected_steps;
  std::vector<InverseStep> steps;
  Estimate pseudo_inverse;  // error of attention with A⁺ itself
};
/// Measures nystrom with this number of landmarks. Throws ConfigError if it exceeds the tokens.
InverseError inverse_errors(const std::vector<HeadInputs>& inputs, int64_t landmarks,
                            int64_t steps = 20);

/// The means of m consecutive segments of the rows of x (N, D), the shorter ones first, as in
/// nystrom: (m, D) in f64.
Tensor segment_means(const Tensor& x, int64_t m);

}  // namespace longhand::attention::analysis
