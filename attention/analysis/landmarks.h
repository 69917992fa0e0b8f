// Landmarks: the error of approximations from a random subset of tokens, by its size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/core/statistics.h"
#include "longhand/core/tensor.h"

namespace longhand::attention::analysis {

/// The matrix that landmarks approximate. J is a set of m tokens sampled without replacement.
enum class LandmarkTarget {
  linear,       // S = Q Kᵀ, by S[:, J] S[J, J]⁺ S[J, :]
  exponential,  // S = exp(Q Kᵀ / sqrt(D)), in the same way
  softmax,      // S = softmax(Q Kᵀ / sqrt(D)), in the same way: entries of S need all keys
  nystrom  // the same S by softmax(Q K̃ᵀ) softmax(Q̃ K̃ᵀ)⁺ softmax(Q̃ Kᵀ), Q̃ and K̃ the rows J
};
std::string name_of(LandmarkTarget target);

/// The relative error |S - Ŝ| / |S| (Frobenius norms) of the approximation from the indices J, for
/// q and k (N, D) in f64. Singular values below 1e-10 of the largest count as 0.
double landmark_error(LandmarkTarget target, const Tensor& q, const Tensor& k,
                      const std::vector<int64_t>& landmarks);

struct LandmarkOptions {
  int64_t tokens = 50, dim = 10;
  std::vector<int64_t> landmarks{};  // numbers m; empty: 1 … min(tokens, 2 dim)
  int64_t draws = 200;
  double norm = 0;  // root mean square norm of queries and keys; 0: sqrt(dim), entries of N(0, 1)
  uint64_t seed = 0;
};
/// Errors over draws of q, k and J.
struct LandmarkError {
  LandmarkTarget target{};
  int64_t landmarks = 0;
  Estimate mean{};
  double low = 0, median = 0, high = 0;  // quantiles 0.1, 0.5, 0.9: errors have long tails
  double exact = 0;                      // the fraction of draws with an error of at most 1e-6
};
/// Runs the Monte Carlo experiment for all targets. The linear kernel's S has rank D: as soon as
/// m >= D, S[J, J] has the same rank with probability 1, and then the approximation is S itself.
/// This says nothing about softmax, whose S has rank N. Throws ConfigError for numbers of landmarks
/// outside 1 … tokens. With `heads`, of one length and dimension, only J is random: draws use the
/// queries and keys of these heads in turn.
std::vector<LandmarkError> landmark_errors(const LandmarkOptions& options = {},
                                           std::span<const HeadInputs> heads = {});

}  // namespace longhand::attention::analysis
