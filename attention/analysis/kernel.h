// Kernel: approximations of softmax and Gaussian kernel matrices by random features and by
// landmarks (Nyström), compared with theory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhand/attention/features/random_features.h"
#include "longhand/core/statistics.h"

namespace longhand::attention::analysis {

// Below, u = W x (…, m) for rows w_l of N(0, I).

/// Estimators of the softmax kernel: E φ(x)·φ(y) = exp(x·y).
enum class Estimator {
  positive,           // m^(-1/2) exp(u - |x|²/2)
  hyperbolic,         // (2m)^(-1/2) [exp(u - |x|²/2), exp(-u - |x|²/2)]
  trigonometric,      // m^(-1/2) exp(|x|²/2) [cos u, sin u]
  trigonometric_bias  // (2/m)^(1/2) exp(|x|²/2) cos(u + b), b uniform on [0, 2π)
};

/// All of them with their names: those of the softmax kernel alone, then those of both kernels.
inline constexpr std::pair<Estimator, const char*> estimators[] = {
    {Estimator::positive, "positive"},
    {Estimator::hyperbolic, "hyperbolic"},
    {Estimator::trigonometric, "trigonometric"},
    {Estimator::trigonometric_bias, "trigonometric_bias"}};

/// φ for the softmax kernel, for x (n, D), W (m, D) and, with trigonometric_bias, phases (m):
/// (n, m) or (n, 2m).
Tensor softmax_features(Estimator estimator, const Tensor& x, const Tensor& W,
                        const Tensor& phases = {});
/// φ for the Gaussian kernel, E φ(x)·φ(y) = exp(-|x - y|²/2): m^(-1/2) [cos u, sin u] or
/// (2/m)^(1/2) cos(u + b). Rahimi & Recht 2007.
Tensor gaussian_features(const Tensor& x, const Tensor& W, const Tensor& phases = {});

/// Kernels of points x and y, such as queries or keys times D^(-1/4).
enum class Kernel {
  softmax,  // e^(x·y), positive definite too
  gaussian  // e^(-|x - y|²/2)
};
std::string name_of(Kernel kernel);

/// The matrix (n, n) of a kernel, for points (n, D) in f64.
Tensor kernel_matrix(Kernel kernel, const Tensor& points);

/// The variance of an estimate of the softmax kernel e^(x·y) from one row w ~ N(0, I), with z = x +
/// y, Δ = x - y and SM = e^(x·y). The mean over m independent rows has 1/m of this variance.
///
///   positive            e^|z|² SM² (1 - e^-|z|²)
///   hyperbolic          that times (1 - e^-|z|²) / 2
///   trigonometric       e^|z|² SM^-2 (1 - e^-|Δ|²)² / 2
///   trigonometric_bias  e^(|x|²+|y|²) (1 + e^(-2|Δ|²) / 2 - e^-|Δ|²)
///
/// Choromanski et al. 2020 (arXiv 2009.14794), lemma 2, theorem 2.
double softmax_variance(Estimator estimator, std::span<const double> x, std::span<const double> y);
/// The same for the Gaussian kernel, estimated by [cos, sin] or, `with_phases`, by cos(w·x + b):
/// the trigonometric variances without the factor e^(|x|²+|y|²) (Rahimi & Recht 2007; Sutherland &
/// Schneider 2015, arXiv 1506.02785).
double gaussian_variance(bool with_phases, std::span<const double> x, std::span<const double> y);

/// How landmarks L of a Nyström approximation κ(X, L) κ(L, L)⁺ κ(L, X) are chosen from points X.
enum class Landmarks {
  uniform,   // points, without replacement
  segment,   // means of consecutive segments, as in nystrom
  kmeans,    // centres of k-means: k-means++ and 10 Lloyd steps (Zhang et al. 2008)
  leverage,  // points, without replacement, with probabilities proportional to their ridge leverage
             // scores (K (K + λ I)^-1)_ii, λ such that these sum to m (Alaoui & Mahoney 2015)
};

struct KernelOptions {
  std::vector<int64_t> sizes{16, 64, 256};  // m random rows, or m landmarks (at most the points)
  int64_t draws = 16;                       // repetitions of every measurement
  int64_t ensemble = 4;                     // matrices that are averaged
  uint64_t seed = 0;
};

/// One approximation at one size. Errors are relative to |K| (Frobenius norms).
struct KernelError {
  Kernel kernel{};
  std::string method{};  // an estimator, or the landmarks
  std::string draw{};    // "iid" or "orthogonal" rows; empty for landmarks
  int64_t size = 0;      // rows of W, or landmarks
  int64_t features = 0;  // columns of the factor: 2 m with sines and cosines, else m
  int64_t draws = 0;     // 1 if nothing is random
  Estimate error{};      // of one matrix
  double rms = 0;        // (mean of squared errors)^(1/2)
  /// Random features: the rms error of independent rows by the closed form, (Σ variance / m)^(1/2)
  /// / |K|. Landmarks: the least error of any matrix of rank m. It and the error are 0 if the m
  /// landmarks are all points.
  double expected = 0;
  /// Random features: squared errors relative to their expectation; 1 for independent rows.
  /// Negative eigenvalues are impossible for either method, except for rounding.
  Estimate ratio{};
  double least_eigenvalue = 0;  // the smallest of all draws, relative to the largest one of K
  /// The mean of `ensemble` matrices of this size, and one matrix of ensemble times this size.
  /// Without randomness, or if that exceeds the points, single_error is empty (count 0).
  int64_t ensemble = 0;
  Estimate ensemble_error{}, single_error{};
};

/// Errors of all methods on the given points (n, D) in f64. Throws ConfigError for sizes below 1.
std::vector<KernelError> kernel_errors(const Tensor& points, Kernel kernel,
                                       const KernelOptions& options = {});

/// The landmarks (m, D) of points (n, D).
Tensor choose_landmarks(Landmarks how, Kernel kernel, const Tensor& points, int64_t m,
                        const Generator& generator);
/// κ(X, L) κ(L, L)⁺ κ(L, X)
Tensor nystrom_matrix(Kernel kernel, const Tensor& points, const Tensor& landmarks);

}  // namespace longhand::attention::analysis
