// What each variant computes, as the N x M weights of its formula: composed operations, one after
// the other as the formula is read, in quadratic time and memory. Read these first. Tests compare
// the variants with them, and attention maps are made of them.
//
// Queries q are (B, N, H, D), keys k (B, M, H, D), as variants get them; weights are (B, H, N, M).
// Everything is differentiable. Rows of queries that may see no key are 0, unless a formula has no
// room for masks.
#pragma once

#include <string>

#include "longhand/autograd/variable.h"

namespace longhand::attention::definitions {

/// Which keys a query may see.
struct Visibility {
  bool causal = false;  // j <= i
  Tensor lengths{};     // (B) i32: i < lengths[b] and j < lengths[b]
  int64_t window = -1;  // not negative: |i - j| <= window
  int64_t globals = 0;  // but the first ones see all, and all see them
};
/// (B or 1, 1, N, M) u8, 1 where query i may see key j.
Tensor visible(int64_t queries, int64_t keys, const Visibility& what);

/// O = W V, for weights (B, H, N, M) and v (B, M, H, E): (B, N, H, E).
Variable apply(const Variable& weights, const Variable& v);

// ---- softmax and its approximations -------------------------------------------------------------

/// softmax(scale Q Kᵀ + bias) over the visible keys, scale = 1/sqrt(D) where it is 0. Vaswani et
/// al. 2017 (arXiv 1706.03762), eq. 1. With Visibility::window: Beltagy et al. 2020 (arXiv
/// 2004.05150), 3.1.
Variable softmax(const Variable& q, const Variable& k, const Tensor& visible, double scale = 0,
                 const Variable& bias = {});

/// softmax(Q (E K)ᵀ / sqrt(D)) F for E and F (p, M) or (H, p, M). Wang et al. 2020 (arXiv
/// 2006.04768), eq. 7. Padding of k and v must hold zeros.
Variable linformer(const Variable& q, const Variable& k, const Variable& E, const Variable& F);

/// softmax(Q K̃ᵀ) A⁺ softmax(Q̃ Kᵀ), A = softmax(Q̃ K̃ᵀ), scores over sqrt(D), with landmarks Q̃, K̃
/// that are means of m segments, the shorter ones first. A⁺ is the Moore-Penrose inverse, or with
/// iterations > 0 what so many steps make of it. Xiong et al. 2021 (arXiv 2102.03902), eq. 13-14.
Variable nystrom(const Variable& q, const Variable& k, int64_t landmarks, int64_t iterations = 0);

/// The softmax weights cut to rank r, U_r U_rᵀ P with P = U Σ Vᵀ. Eckart & Young 1936. U_r is a
/// constant to the gradient.
Variable svd(const Variable& q, const Variable& k, int64_t rank, const Tensor& visible);

// ---- features -----------------------------------------------------------------------------------

/// W_ij = φ(q_i)·φ(k_j) / Σ_j φ(q_i)·φ(k_j) over the visible keys, for features (B, N, H, m) and
/// (B, M, H, m). Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 4. A row of sum 0 is 0.
Variable of_features(const Variable& features_q, const Variable& features_k, const Tensor& visible);

/// Features of the variant linear: "elu1", "relu", "squared_relu", "exp", "taylor2" (of 1 + s +
/// s²/2), "cosformer" (of tokens that are numbered from 1, of at most max_length), "hedgehog" (with
/// A (H, D, D)). The papers are named in variants/linear.cpp.
Variable linear_features(const std::string& map, const Variable& x, int64_t max_length = 0,
                         const Variable& A = {});

/// Features of the variant performer, of x D^(-1/4): "positive" exp(W x - |x|²/2), "hyperbolic",
/// "trigonometric" exp(|x|²/2) [cos W x, sin W x], "trigonometric_bias", or f(W x) + eps for f =
/// "relu", "exp", "gelu", "square". W is (m, D) or (H, m, D). Choromanski et al. 2020 (arXiv
/// 2009.14794), eq. 5-6.
Variable performer_features(const std::string& kernel, const Variable& x, const Variable& W,
                            double eps = 0, const Variable& phases = {});

/// [cos W x, sin W x], or cos(W x + b) with phases b: features of exp(-|x - y|²/2). Rahimi & Recht
/// 2007.
Variable gaussian_features(const Variable& x, const Variable& W, const Variable& phases = {});

// ---- other kernels ------------------------------------------------------------------------------

/// Σ_d softmax_D(q_i)_d e^k_jd / Σ_j e^k_jd over the visible keys. Shen et al. 2018 (arXiv
/// 1812.01243), eq. 4.
Variable efficient(const Variable& q, const Variable& k, const Tensor& visible);

/// κ(q_i, k_j) = exp(-|q_i - k_j|² / (2 sigma² sqrt(D))) over the visible keys, as it is or over
/// row sums. Chen et al. 2021 (arXiv 2111.00035), eq. 3.
Variable gaussian(const Variable& q, const Variable& k, const Tensor& visible, double sigma = 1,
                  bool normalized = true);

/// κ(Q, L) (κ(L, L) + gamma I)⁻¹ κ(L, K) for landmarks L (B, d, H, D). Chen et al. 2021, eq. 6.
Variable skyformer(const Variable& q, const Variable& k, const Variable& landmarks,
                   double sigma = 1, double gamma = 0);

// ---- decay --------------------------------------------------------------------------------------

/// W_ij = Σ_l q_il k_jl e^(g_(j+1)l + … + g_il) for j <= i, else 0; g is (B, N, H), (B, N, H, D),
/// or undefined for 0, and finite. Nothing is scaled or normalised. Sun et al. 2023 (arXiv
/// 2307.08621), eq. 5; Yang et al. 2023 (arXiv 2312.06635), eq. 4.
Variable retention(const Variable& q, const Variable& k, const Variable& log_decay = {});

// ---- weights that know no content ---------------------------------------------------------------

/// U Vᵀ of U and V (H, N, r) over the visible keys, or its softmax. Tay et al. 2020 (arXiv
/// 2005.00743), 3.2.
Variable lowrank(const Variable& U, const Variable& V, bool softmax, const Tensor& visible);
/// softmax(R) over the visible keys, for R (H, N, N). Tay et al. 2020, 3.2.
Variable random(const Variable& R, const Tensor& visible);
/// The same weight for every visible key.
Variable mean(const Tensor& visible, DType dtype);
/// Every token itself.
Variable none(const Tensor& visible, DType dtype);

}  // namespace longhand::attention::definitions
