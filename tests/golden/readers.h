// What reads golden cases: each compares one with Longhand, in f64 to 1e-9 and in f32 to 2e-4 (models in
// f64 to 1e-7).
#pragma once

#include "tests/support/golden.h"

namespace longhand::test {

/// A variant: its result and every gradient.
void read_core(const Golden& golden);
/// The same in one dtype.
void check_core(const Golden& golden, DType dtype, double tolerance);
/// retnet, mamba2 and gla, as scans and as variants.
void read_scan(const Golden& golden);
/// deltanet, gated_deltanet, deltaproduct, kda and rwkv7, as delta scans.
void read_delta_scan(const Golden& golden);
/// log_linear, as a scan with scales of levels.
void read_fenwick_scan(const Golden& golden);
/// mesa, by conjugate gradients and by inverses.
void read_ridge_scan(const Golden& golden);
/// Softmax attention with a log decay of each token.
void read_forgetting(const Golden& golden);
/// Softmax attention through products of generalised Householder matrices.
void read_path(const Golden& golden);
/// Block-sparse attention with the random blocks of the case.
void read_bigbird(const Golden& golden);
/// Scatterbrain with the features of the case.
void read_scatterbrain(const Golden& golden);
/// A whole model and its training.
void read_model(const Golden& golden);

/// A dataset (B, H, N, …) as (B, N, H, …), in the dtype.
inline Tensor by_token(const Tensor& t, DType dtype) { return t.to(dtype).transpose(1, 2); }

}  // namespace longhand::test
