// Random features of the softmax and Gaussian kernels, and how their projections are sampled,
// stored and redrawn.
#pragma once

#include <optional>

#include "longhand/attention/bases/half_square.h"
#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/features/feature_map.h"

namespace longhand::attention {

// ---- projections: W (m, D) in f64 --------------------------------------------------------------

/// Distribution of the row norms.
enum class RowNorm {
  chi,    // as for rows from N(0, I), so that estimates are unbiased
  sqrt_d  // all sqrt(D): less variance, but a bias (Choromanski et al. 2020, "SMREG")
};

/// Samples independent rows from N(0, I).
Tensor draw_gaussian(const Generator& generator, int64_t features, int64_t dim,
                     RowNorm norm = RowNorm::chi);
/// Samples rows that are orthogonal within each block of D rows, from a Haar-distributed Q; the
/// last block is truncated. Yu et al. 2016 (arXiv 1610.09072); Choromanski et al. 2020
/// (arXiv 2009.14794), section 2.4.
Tensor draw_orthogonal(const Generator& generator, int64_t features, int64_t dim,
                       RowNorm norm = RowNorm::chi);
/// Like draw_orthogonal(), but Q is a product of 3 D ceil(ln D) rotations by random angles in
/// random coordinate planes, with random signs of the rows: close to Haar-distributed, without a QR
/// factorisation.
Tensor draw_givens(const Generator& generator, int64_t features, int64_t dim,
                   RowNorm norm = RowNorm::chi);

// ---- features -----------------------------------------------------------------------------------
// Below, u = W x (…, m) for rows w_l from N(0, I).

/// The A <= 0 for which the features (1 - 4A)^(D/4) m^(-1/2)
/// exp(A |w_l|² + sqrt(1 - 4A) u - |x|²/2) have the least variance for pairs with |x + y|² =
/// `square`. They are unbiased for every A, bounded for A < 0, and the positive features for A = 0.
/// Likhosherstov et al. 2022 (arXiv 2205.15317), eq. 9 and theorem 3.2.
double optimal_coefficient(int64_t dim, double square);

/// Logarithms of positive features without norm and constant: u, or [u, -u] if `both`.
Variable exponents(const Variable& u, bool both);
/// [cos u, sin u], or cos(u + b) with phases b, which broadcast.
Variable waves(const Variable& u, const Tensor& phases = {});

// ---- maps --------------------------------------------------------------------------------------

/// Options of a random projection.
struct RandomFeatureOptions {
  int64_t features = 256;
  std::string draw = "orthogonal", norm = "chi", heads = "shared";
  int64_t redraw_interval = 1000;

  bool learned() const { return draw == "learned"; }
  bool per_head() const { return heads == "per_head"; }
  /// The contents of a checkpoint: the buffers of RandomFeatureMap.
  std::string state(bool with_phases) const;
  void describe(OptionVisitor& v);
};

/// Base of maps with a random projection. The buffer "features" is (m, D) or, with heads =
/// "per_head", (H, m, D); with phases, the buffer "phases" is (m) or (H, m). With draw = "learned",
/// "features" is a parameter initialised with orthogonal rows, nothing is redrawn, and there are no
/// buffers of Redraws.
class RandomFeatureMap : public FeatureMap {
 public:
  /// `columns` features and `exponentials` exponentials per row of W.
  RandomFeatureMap(const MapScope& scope, const RandomFeatureOptions& options, bool with_phases,
                   int64_t columns, int64_t exponentials);
  void on_step() override;

  /// Whether W is a parameter, so that features must compute its gradient.
  bool learned() const { return trained_.has_value(); }
  /// D^(-1/4), the factor applied to x for the softmax kernel.
  double x_scale() const;
  /// scale W.
  Variable projection(double scale) const;
  /// W (scale x) for x (B, N, H, D): (B, N, H, m).
  Variable project(const Variable& x, double scale) const;

 protected:
  /// The features [cos u, sin u], or cos(u + b) with phases, of u = W (scale x). With `factor`,
  /// those of keys are multiplied by exp(|scale x|²/2). Computed explicitly if learned or causal.
  Features wave_features(const Variable& q, const Variable& k, double scale, bool factor) const;

 private:
  Tensor draw(const Generator& generator) const;
  Tensor draw_phases(const Generator& generator) const;

  const Config& config_;
  DType dtype_;
  RandomFeatureOptions options_;
  std::optional<Redraws> redraws_;
  std::optional<nn::Buffer> features_;  // W, unless it is trained
  std::optional<nn::Parameter> trained_;
  std::optional<nn::Buffer> phases_;
};

/// Signed: exp(|x̂|²/2) [cos W x̂, sin W x̂], with phases b exp(|x̂|²/2) cos(W x̂ + b); x̂ = D^(-1/4) x.
/// Normalisers may be near 0. Choromanski et al. 2020 (arXiv 2009.14794); Rahimi & Recht 2007.
class TrigonometricMap : public RandomFeatureMap {
 public:
  TrigonometricMap(const MapScope& scope, const RandomFeatureOptions& options, bool with_phases,
                   const GuardOptions& guard_options);

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    return wave_features(q, k, x_scale(), true);
  }
};

// ---- maps of performer -------------------------------------------------------------------------
// With x̂ = D^(-1/4) x and u = W x̂; constants that cancel in the quotient are omitted.

/// exp(u - |x̂|²/2), or the 2m features exp(±u - |x̂|²/2) if `both`; exp(u) without `norm`.
/// `absolute`: keep factors common to all features of a query.
std::unique_ptr<RandomFeatureMap> exponential_map(const MapScope& scope,
                                                  const RandomFeatureOptions& options, bool both,
                                                  bool norm, bool absolute = false);
/// exp(A |w_l|² + (1 - 4A)^(1/2) u - |x̂|²/2), with A from optimal_coefficient() for elements of q
/// and k of standard deviation `spread`.
std::unique_ptr<RandomFeatureMap> optimal_map(const MapScope& scope,
                                              const RandomFeatureOptions& options, double spread);
/// Other kernels: f(u) + eps, with f one of "relu", "gelu", "square" or, with eps > 0, "exp".
std::unique_ptr<RandomFeatureMap> elementwise_map(const MapScope& scope,
                                                  const RandomFeatureOptions& options,
                                                  const std::string& f, double eps,
                                                  const GuardOptions& guard);

}  // namespace longhand::attention
