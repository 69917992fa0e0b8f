// Exact softmax attention in memory O(N): computed in tiles, without storing the N x M matrix.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/random.h"

namespace longhand::attention {

/// Which blocks of keys each block of queries attends to. Queries are split into blocks of `block`
/// tokens and keys into blocks of keys_of_block() tokens; the last blocks may be shorter.
struct BlockPattern {
  int64_t block = 64;   // fastest from 48 on
  int64_t samples = 1;  // B, or 1: the same for all samples
  int64_t heads = 1;    // H, or 1: the same for all heads
  /// Row r, indexed by sample, head and block of queries in this order, attends to the blocks
  /// keys[begin[r]] to keys[begin[r + 1] - 1], in increasing order.
  std::vector<int64_t> begin{0};
  std::vector<int32_t> keys{};
  int64_t key_block = 0;  // tokens per block of keys; 0: `block`

  int64_t keys_of_block() const { return key_block ? key_block : block; }
  /// Ends a row: its keys are those appended since the previous row.
  void end_row() { begin.push_back(static_cast<int64_t>(keys.size())); }
  /// Appends a row with one block of keys, or with none if it is negative.
  void add_row(int64_t of_keys) {
    if (of_keys >= 0) keys.push_back(static_cast<int32_t>(of_keys));
    end_row();
  }
};

struct SoftmaxAttentionOptions {
  double scale = 0;        // τ; 0: 1 / sqrt(D)
  bool causal = false;     // query i attends to keys j <= i
  int64_t window = 0;      // if not 0, only to keys with |i - j| < window
  Tensor key_lengths{};    // (B) i32: keys from this index on are ignored; undefined: none
  Tensor query_lengths{};  // (B) i32: queries from this index on attend to nothing
  /// Blocks of keys that a block of queries does not list are skipped; null: no block is skipped.
  /// The other options apply as well.
  std::shared_ptr<const BlockPattern> pattern{};
  std::vector<double> slopes{};  // one per head, or none: -slope |i - j| is added to the scores
  /// (B, M, H), at most 0, finite; undefined: 0. The sum of log_decay_t over j < t <= i is added to
  /// the score of query i and key j: a forget gate. Lin et al. 2025 (arXiv 2503.02130), eq. 3-4.
  Variable log_decay{};
  /// (B, M, H), finite; undefined: 0. key_bias_j is added to the scores of key j, for every query.
  Variable key_bias{};
  /// (H); undefined: -inf. The score of an additional key, with the value 0, for all queries of a
  /// head: e^sink is added to normalisers. Xiao et al. 2023 (arXiv 2309.17453).
  Variable sink{};
  /// Uses weights σ(s_ij) = 1 / (1 + e^(-s_ij)), not normalised, instead of a softmax. Excludes
  /// log_decay, sink and sums. Ramapuram et al. 2024 (arXiv 2409.04431).
  bool sigmoid = false;
  /// Dropout of the probabilities, see ProbabilityDropout; the section is that of the heads of q.
  DropoutOptions dropout{};
  /// The index of the first query among the keys. By default 0, and every key has a query.
  std::optional<int64_t> first_query{};
  /// The index of the first key, which must be even, if k and v are a block of the keys of a
  /// sequence. first_query is then any index of that sequence. Excludes log_decay and pattern.
  std::optional<int64_t> first_key{};
};

/// softmax(τ QKᵀ + bias) V for every head: q (B, N, H, D), k and v (B, M, Hkv, D), where H is a
/// multiple of Hkv and query head h uses key head h Hkv / H. The result is (B, N, H, D), row-major.
/// Operands may have any strides, and are copied only if rows of D elements are not contiguous.
/// Results and gradients of queries with no key to attend to are 0, as are gradients of keys that
/// no query attends to; their values are not used. Scores may have any finite magnitude. Gradients
/// use probabilities from L = log Σ e^s, which is rounded: their relative error is |L| times that
/// of L, in f32 about 1 % for scores near 10⁵.
///
/// For the gradients, saves the inputs, the result and one element per query and head, and
/// recomputes the probabilities. Bitwise identical for any number of threads.
///
/// Differentiable with respect to q, k, v, log_decay, key_bias and sink.
///
/// Throws ShapeError if shapes or dtypes do not match, if a pattern has other sizes, or if not
/// every query is one of the keys for causal, window, slopes or log_decay. Throws ConfigError for a
/// dropout outside [0, 1), a negative window, a pattern of empty blocks, odd blocks of keys with
/// dropout, a log_decay that is not causal, or a log_decay, a sink or sums with sigmoid weights.
Variable softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                           const SoftmaxAttentionOptions& options);

struct SoftmaxAttentionResult {
  Variable out;  // (B, N, H, D)
  Variable
      log_sums;  // (B, H, N): log Σ_j e^(s_ij) with the sink; -inf if a query attends to nothing
};
/// Computes softmax_attention() and the logarithms of its normalisers, for joining with other sums.
/// Both are differentiable.
SoftmaxAttentionResult softmax_attention_with_sums(const Variable& q, const Variable& k,
                                                   const Variable& v,
                                                   const SoftmaxAttentionOptions& options);

/// Adds the gradients of softmax_attention() of a block of keys to dq, dk and dv, contiguous and of
/// the shapes of q, k and v. `out` (B, N, H, D) and `log_sums` (B, H, N) are the results over all
/// blocks, and dout is the gradient of that `out`. Throws as softmax_attention() does, and
/// ConfigError for a log_decay, key_bias, sink or sigmoid weights.
void add_softmax_attention_gradients(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& out, const Tensor& log_sums, const Tensor& dout,
                                     const SoftmaxAttentionOptions& options, Tensor& dq, Tensor& dk,
                                     Tensor& dv);

}  // namespace longhand::attention
