// Checks that belong to single variants of the library; each is named in the Spec of its variant.
// A variant of your own may define its checks in its own file.
#pragma once

namespace longhand::attention::conformance {

class Findings;

// limits.cpp: settings for which an approximation is exact, or two options are equivalent.
void softmax_tiled(Findings&);
void linformer_identity(Findings&);
void linformer_pooling(Findings&);
void linformer_local(Findings&);
void linear_kernels(Findings&);
void nystrom_limits(Findings&);
void svd_limits(Findings&);
void window_limits(Findings&);
void bigbird_limits(Findings&);
void scatterbrain_limits(Findings&);
void controls(Findings&);
void gaussian_limits(Findings&);
void skyformer_limits(Findings&);
void efficient_weights(Findings&);
void retention_weights(Findings&);
void gla_limits(Findings&);
void mamba2_limits(Findings&);
void rfa_gates(Findings&);
void rff_limits(Findings&);
void forgetting_limits(Findings&);
void topk_limits(Findings&);
void latent_limits(Findings&);
void reformer_limits(Findings&);
void eva_limits(Findings&);
void clustered_limits(Findings&);
void lara_one_landmark(Findings&);
void deltanet_limits(Findings&);
void gated_deltanet_limits(Findings&);
void kda_limits(Findings&);
void rwkv7_limits(Findings&);
void conv_limits(Findings&);
void synthesizer_limits(Findings&);
void aft_limits(Findings&);
void fnet_limits(Findings&);

// statistics.cpp: the mean and the error of estimators of the softmax kernel, and how fast errors
// decrease.
void closed_forms(Findings&);
void orthogonal_unbiased(Findings&);
void givens_unbiased(Findings&);
void orthogonal_better(Findings&);
void optimal_better(Findings&);
void balanced_better(Findings&);
void row_distribution(Findings&);
void redraws(Findings&);
void positive_rate(Findings&);
void orthogonal_rate(Findings&);
void softmax_of_features(Findings&);
void no_collapse(Findings&);
void bigbird_draws(Findings&);
void scatterbrain_rate(Findings&);
void trigonometric_rate(Findings&);
void phase_rate(Findings&);
void trigonometric_large(Findings&);
void lara_rate(Findings&);

}  // namespace longhand::attention::conformance
