// Random projections for kernel features: how they are drawn, kept, and drawn anew.
#pragma once

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// W (m, D) in f64 whose rows are N(0, I). Independent rows.
Tensor draw_gaussian(const Generator& generator, int64_t features, int64_t dim);
/// The same distribution of every single row, but rows within each block of D are orthogonal: a
/// Haar-distributed Q times chi-distributed norms; the last block is cut off. Yu et al. 2016 (arXiv
/// 1610.09072); Choromanski et al. 2020 (arXiv 2009.14794), 2.4.
Tensor draw_orthogonal(const Generator& generator, int64_t features, int64_t dim);

/// Base of variants with a random projection, the buffer "features" (m, D). Reads the options
///   features = 256            m
///   draw = "orthogonal"       or "iid"
///   redraw_interval = 1000    optimizer steps between fresh draws; 0: never
/// Steps and draws are counted, and the random state is kept, in buffers: a checkpoint goes on to
/// the same draws.
class RandomFeatureVariant : public Variant {
 protected:
  RandomFeatureVariant(const nn::Scope& scope, const Config& config);

  /// W D^(-1/4), a constant: its product with q or k is W q̂, where q̂·k̂ = q·k / sqrt(D).
  Variable projection() const;
  /// |x̂|² / 2 for x (B, N, H, D): (B, N, H, 1).
  static Variable half_square(const Variable& x);

  void on_step() override;

 private:
  Tensor draw() const;

  int64_t features_count_;
  bool orthogonal_;
  int64_t redraw_interval_;
  nn::Buffer random_state_;  // (2) i64, the generator's
  nn::Buffer redraws_;       // i64, a scalar
  nn::Buffer steps_;         // i64, a scalar
  nn::Buffer features_;
};

}  // namespace longhand::attention
