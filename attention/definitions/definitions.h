// The N x M weights that each variant computes: composed operations in the order of its formula, in
// quadratic time and memory. Start reading here. Tests compare the variants with these definitions,
// and attention maps are computed from them.
//
// Queries q are (B, N, H, D), keys k (B, M, H, D), as in Variant::forward(); weights are (B, H, N,
// M). Everything is differentiable. Rows of queries with no visible key are 0, except for formulas
// that do not support masks.
#pragma once

#include <string>

#include "longhand/autograd/variable.h"

namespace longhand::attention::definitions {

/// Which keys are visible to a query.
struct Visibility {
  bool causal = false;  // j <= i
  Tensor lengths{};     // (B) i32: i < lengths[b] and j < lengths[b]
  int64_t window = -1;  // if not negative: |i - j| = 0, dilation, 2 dilation, ..., window dilation
  int64_t globals = 0;  // the first `globals` tokens see all tokens and are seen by all
  int64_t dilation = 1;
};
/// (B or 1, 1, N, M) u8, 1 where key j is visible to query i.
Tensor visible(int64_t queries, int64_t keys, const Visibility& what);

/// O = W V, for weights (B, H, N, M) and v (B, M, H, E): (B, N, H, E).
Variable apply(const Variable& weights, const Variable& v);

// ---- softmax and its approximations -------------------------------------------------------------

/// softmax(scale Q Kᵀ + bias) over the visible keys; scale 0 means 1/sqrt(D). Vaswani et al. 2017
/// (arXiv 1706.03762), eq. 1. With Visibility::window: Beltagy et al. 2020 (arXiv 2004.05150), 3.1.
Variable softmax(const Variable& q, const Variable& k, const Tensor& visible, double scale = 0,
                 const Variable& bias = {});

/// softmax(Q Kᵀ / sqrt(D) + G_i - G_j) over the visible keys, G_i = Σ_(t<=i) g_t, for g (B, N, H).
/// Lin et al. 2025 (arXiv 2503.02130), eq. 4.
Variable forgetting(const Variable& q, const Variable& k, const Variable& log_decay,
                    const Tensor& visible);

/// softmax((q_iᵀ H_i H_(i-1) … H_(j+1) k_j + G_i - G_j) / sqrt(D)) over the visible keys, all
/// j <= i, with H_t = I - β_t w_t w_tᵀ and G_i = Σ_(t<=i) g_t, for w (B, N, H, D), beta and
/// log_decay g (B, N, H), which may be undefined. Yang et al. 2025 (arXiv 2505.16381), section 2.
Variable path(const Variable& q, const Variable& k, const Variable& w, const Variable& beta,
              const Variable& log_decay, const Tensor& visible);

/// Channels 2 c + s of x (B, N, H, D), D a multiple of 4: (B, N, H, D/2), for s = 0 or 1.
Variable half(const Variable& x, int64_t s);
/// softmax(Q1 K1ᵀ / sqrt(D/2)) - lambda softmax(Q2 K2ᵀ / sqrt(D/2)) over the visible keys, Q1 =
/// half(q, 0), Q2 = half(q, 1), likewise K1 and K2. Ye et al. 2024 (arXiv 2410.05258), eq. 1.
Variable differential(const Variable& q, const Variable& k, double lambda, const Tensor& visible);

/// softmax(Q Kᵀ / sqrt(D)) over the k visible keys of each query with the highest scores, which
/// must not be tied. Gupta et al. 2021 (arXiv 2106.06899), section 2.
Variable topk(const Variable& q, const Variable& k, int64_t count, const Tensor& visible);

/// softmax(Q Kᵀ / sqrt(D)) over the visible keys of the query's own block of `block` tokens, and of
/// the count - 1 blocks before it with the largest q_i·m_c, m_c the mean key of block c. Lu et al.
/// 2025 (arXiv 2502.13189), eq. 3-6.
Variable moba(const Variable& q, const Variable& k, int64_t block, int64_t count,
              const Tensor& visible);

/// softmax(q_i·k_j / sqrt(D)) with keys k_j = sqrt(D) q_j / |q_j| over the tokens j != i that share
/// a bucket with i in some round r, at most `window` places before or after i in it; over i alone
/// if there are none. The bucket of x is argmax [R_r x; -R_r x], for R (H, rounds, buckets / 2, D).
/// Kitaev et al. 2020 (arXiv 2001.04451), section 2.
Variable reformer(const Variable& q, const Tensor& R, int64_t window, const Tensor& visible);

/// The softmax weights A of the mean query of each cluster; if topk > 0, the topk highest are
/// recomputed, with the same sum, as softmax(q_i·k_j / sqrt(D)). clusters (B, H, N) i32. Vyas et
/// al. 2020 (arXiv 2007.04825), section 3.
Variable clustered(const Variable& q, const Variable& k, const Tensor& clusters, int64_t topk);

/// softmax over the keys of the query's own block of `window` tokens and the mean keys of all
/// chunks of `chunk` tokens in other blocks (causal: keys j <= i, earlier blocks). A chunk of n
/// tokens counts n times, and its tokens share its weight as softmax(ω·k_j D^(-1/4) - |k_j|² / (2
/// sqrt(D))) with ω = D^(-1/4) (q̄ + k̄). Zheng et al. 2023 (arXiv 2302.04542), eq. 16-18.
Variable eva(const Variable& q, const Variable& k, int64_t window, int64_t chunk, bool causal);

/// Σ_c w_ic ξ(y_j, μ_c) / Σ_j ξ(y_j, μ_c), for normalised importance weights w of means μ_c = x̄_c
/// + ȳ_c of m segments, x, y = D^(-1/4) (q, k). Zheng et al. 2022 (arXiv 2204.04667), eq. 14-15.
Variable lara(const Variable& q, const Variable& k, int64_t landmarks, bool balance);

/// a_ij / Σ_j a_ij over the visible keys with a_ij = exp(q_i·k_j / sqrt(D)) where |i - j| < window,
/// otherwise φ(q_i)·φ(k_j). Chen et al. 2021 (arXiv 2110.15343), section 4.1.
Variable scatterbrain(const Variable& q, const Variable& k, const Variable& features_q,
                      const Variable& features_k, int64_t window, const Tensor& visible);

/// softmax(Q Lᵀ / sqrt(D)) softmax(L Kᵀ / sqrt(D)) for latents L (H, m, D). Lee et al. 2019 (arXiv
/// 1810.00825), eq. 9-10.
Variable latent(const Variable& q, const Variable& k, const Variable& L, const Tensor& visible);

/// softmax(Q (E K)ᵀ / sqrt(D)) F for E and F (p, M) or (H, p, M). Wang et al. 2020 (arXiv
/// 2006.04768), eq. 7. Padding of k and v must be zero.
Variable linformer(const Variable& q, const Variable& k, const Variable& E, const Variable& F);

/// softmax(Q K̃ᵀ) A⁺ softmax(Q̃ Kᵀ), A = softmax(Q̃ K̃ᵀ), scores over sqrt(D), with landmarks Q̃,
/// K̃, the means of m segments, the shorter ones first. A⁺ is the Moore-Penrose inverse or, if
/// iterations > 0, its approximation by that many. Xiong et al. 2021 (arXiv 2102.03902), eq. 13-14.
Variable nystrom(const Variable& q, const Variable& k, int64_t landmarks, int64_t iterations = 0);

/// The softmax weights truncated to rank r, U_r U_rᵀ P with P = U Σ Vᵀ. Eckart & Young 1936.
/// Gradients treat U_r as a constant.
Variable svd(const Variable& q, const Variable& k, int64_t rank, const Tensor& visible);

// ---- features -----------------------------------------------------------------------------------

/// W_ij = φ(q_i)·φ(k_j) / Σ_j φ(q_i)·φ(k_j) over the visible keys, for features (B, N, H, m) and
/// (B, M, H, m). Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 4. Rows whose sum is 0 are 0.
Variable of_features(const Variable& features_q, const Variable& features_k, const Tensor& visible);

/// Features of the variant linear: "elu1", "relu", "squared_relu", "exp", "taylor2" (for the kernel
/// 1 + s + s²/2), "cosformer" (for positions from 1 to max_length), "hedgehog" (with A (H, D, D)).
/// The papers are cited in features/.
Variable linear_features(const std::string& map, const Variable& x, int64_t max_length = 0,
                         const Variable& A = {});

/// r_i r_(i+j) for j = 1, …, nu, r = [max(x, 0), max(-x, 0)] with cyclic indices: (B, N, H, 2 D
/// nu). Schlag et al. 2021 (arXiv 2102.11174), eq. 37-38.
Variable dpfp_features(const Variable& x, int64_t nu);
/// x'_i x'_j for all i and j, x' = scale ∘ norm(x) + shift with a layer norm per head and scale and
/// shift (H, D): (B, N, H, D²). Aksenov et al. 2024 (arXiv 2402.10644), section 4.
Variable rebased_features(const Variable& x, const Variable& scale, const Variable& shift);
/// max(W x + b, 0) for W (H, m, D) and b (H, m). Kasai et al. 2021 (arXiv 2103.13076), eq. 4.
Variable t2r_features(const Variable& x, const Variable& W, const Variable& b);

/// Features of the variant performer, where x stands for x D^(-1/4): "positive" exp(W x - |x|²/2),
/// "hyperbolic", "trigonometric" exp(|x|²/2) [cos W x, sin W x], "trigonometric_bias", or f(W x) +
/// eps for f = "relu", "exp", "gelu", "square". W is (m, D) or (H, m, D). Choromanski et al. 2020
/// (arXiv 2009.14794), eq. 5-6.
Variable performer_features(const std::string& kernel, const Variable& x, const Variable& W,
                            double eps = 0, const Variable& phases = {});

/// [cos W x, sin W x], or cos(W x + b) with phases b, for exp(-|x - y|²/2). Rahimi & Recht 2007.
Variable gaussian_features(const Variable& x, const Variable& W, const Variable& phases = {});

// ---- other kernels ------------------------------------------------------------------------------

/// Σ_d softmax_D(q_i)_d e^k_jd / Σ_j e^k_jd over the visible keys. Shen et al. 2018 (arXiv
/// 1812.01243), eq. 4.
Variable efficient(const Variable& q, const Variable& k, const Tensor& visible);

/// κ(q_i, k_j) = exp(-|q_i - k_j|² / (2 sigma² sqrt(D))) over the visible keys, unnormalised or
/// divided by row sums. Chen et al. 2021 (arXiv 2111.00035), eq. 3.
Variable gaussian(const Variable& q, const Variable& k, const Tensor& visible, double sigma = 1,
                  bool normalized = true);

/// σ(q_i·k_j / sqrt(D) + bias) over visible keys. Ramapuram et al. 2024 (arXiv 2409.04431), eq. 3.
Variable sigmoid(const Variable& q, const Variable& k, const Tensor& visible, double bias);

/// κ(Q, L) (κ(L, L) + gamma I)⁻¹ κ(L, K) for landmarks L (B, d, H, D). Chen et al. 2021, eq. 6.
Variable skyformer(const Variable& q, const Variable& k, const Variable& landmarks,
                   double sigma = 1, double gamma = 0);

// ---- decay --------------------------------------------------------------------------------------

/// W_ij = Σ_l q_il k_jl e^(g_(j+1)l + … + g_il) for j <= i, otherwise 0. The log decay g is finite:
/// (B, N, H), (B, N, H, D), or undefined for 0. Nothing is scaled or normalised. Sun et al. 2023
/// (arXiv 2307.08621), eq. 5; Yang et al. 2023 (arXiv 2312.06635), eq. 4.
Variable retention(const Variable& q, const Variable& k, const Variable& log_decay = {});

/// The same weights times s_(i,l(i,j)), scales s (B, N, H, levels): l(i,i) = 0, and for j < i the
/// only l >= 1 such that bit l - 1 of i is set and j / 2^(l-1) = i / 2^(l-1) - 1, rounded down.
/// Levels beyond the last use its scale. Guo et al. 2025 (arXiv 2506.04761), section 3.
Variable log_linear(const Variable& q, const Variable& k, const Variable& log_decay,
                    const Variable& scales);

/// W = A (I + B L)⁻¹ B, with A = retention(q, k, g), L the part of retention(k, k, g) below its
/// diagonal and B the diagonal matrix of beta (B, N, H): the weights of a delta rule. Yang et al.
/// 2024 (arXiv 2406.06484), eq. 10. With `read`, the vectors that read the state before each write,
/// L is taken from retention(read, k, g).
Variable delta(const Variable& q, const Variable& k, const Variable& beta,
               const Variable& log_decay = {}, const Variable& read = {});

/// W = A_u - A_p (I + L_p)⁻¹ L_u, with A_y = retention(q, y, g) and L_y the part of retention(r, y,
/// g) below its diagonal: the weights of the rule S_i = S'_i - p_i (S'_iᵀ r_i)ᵀ + u_i v_iᵀ,
/// S'_i = diag(e^{g_i}) S_(i-1), which reads with r, removes with p and writes with u. Peng et al.
/// 2025 (arXiv 2503.14456), section 4.
Variable rwkv7(const Variable& q, const Variable& read, const Variable& removed,
               const Variable& written, const Variable& log_decay);

/// W = retention(x, β k, g) with x_i = (A_i + diag(λ))⁻¹ q_i, A_i = Σ_(j<=i) e^(g_(j+1) + … + g_i)
/// β_j k_j k_jᵀ, for beta and log_decay (B, N, H) and lambda (H, D). von Oswald et al. 2025 (arXiv
/// 2506.05233).
Variable mesa(const Variable& q, const Variable& k, const Variable& beta, const Variable& log_decay,
              const Variable& lambda);

/// W_ij = (R_i q_i)·(R_j k_j) e^(g_(j+1) + … + g_i) (λ_j Δ_j + (1 - λ_(j+1)) Δ_(j+1)) for j < i,
/// and q_i·k_i λ_i Δ_i for j = i, for steps Δ, blends λ and decays g (B, N, H). R_i rotates the
/// pair of channels l and l + m by θ_1l + … + θ_il, for angles θ (B, N, H, m). Lahoti et al. 2026
/// (arXiv 2603.15569), section 3.
Variable mamba3(const Variable& q, const Variable& k, const Variable& steps, const Variable& blends,
                const Variable& log_decay, const Variable& angles);

// ---- weights that do not depend on queries and keys ---------------------------------------------

/// U Vᵀ for U and V (H, N, r) over the visible keys, or its softmax. Tay et al. 2020 (arXiv
/// 2005.00743), 3.2.
Variable lowrank(const Variable& U, const Variable& V, bool softmax, const Tensor& visible);
/// softmax(S) over the visible keys with S_i = W max(h_i, 0) + b, for h (B, N, H, r), W (H, M, r)
/// and b (H, M): the dense synthesizer. Tay et al. 2020, 3.1.
Variable synthesizer(const Variable& hidden, const Variable& W, const Variable& b,
                     const Tensor& visible);
/// The result, as weights differ by channel: sigmoid(q_i) ∘ Σ_j p_ij ∘ v_j, p the softmax of k_j +
/// w_ij over the visible keys, for w (N, N). Zhai et al. 2021 (arXiv 2105.14103), eq. 2.
Variable aft(const Variable& q, const Variable& k, const Variable& v, const Variable& w,
             const Tensor& visible);
/// softmax(R) over the visible keys, for R (H, N, N). Tay et al. 2020, 3.2.
Variable random(const Variable& R, const Tensor& visible);
/// The same weight for every visible key of a query.
Variable mean(const Tensor& visible, DType dtype);
/// The identity: each token attends to itself only, if visible.
Variable none(const Tensor& visible, DType dtype);

}  // namespace longhand::attention::definitions
