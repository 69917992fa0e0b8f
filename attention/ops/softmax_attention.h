// Exact softmax attention in memory O(N): computed in tiles, without storing the N x M matrix.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/random.h"

namespace longhand::attention {

/// Which blocks of keys each block of queries attends to. Queries are split into blocks of `block`
/// tokens and keys into blocks of keys_of_block(), the last of which may be shorter.
struct BlockPattern {
  int64_t block = 64;   // fastest from 48 on
  int64_t samples = 1;  // B, or 1: the same for all samples
  int64_t heads = 1;    // H, or 1: the same for all heads
  /// Row r, of a sample, a head and a block of queries in this order, attends to the blocks
  /// keys[begin[r]] to keys[begin[r + 1] - 1], in increasing order.
  std::vector<int64_t> begin{0};
  std::vector<int32_t> keys{};
  int64_t key_block = 0;  // tokens of a block of keys; 0: `block`

  int64_t keys_of_block() const { return key_block ? key_block : block; }
  /// Ends a row of the keys that were appended after the row before it.
  void end_row() { begin.push_back(static_cast<int64_t>(keys.size())); }
  /// Appends a row of one block of keys, or of none if it is negative.
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
  /// Blocks of keys that are not on the list of a block of queries are skipped; null: none are. The
  /// other options apply as well.
  std::shared_ptr<const BlockPattern> pattern{};
  std::vector<double> slopes{};  // one per head, or none: -slope |i - j| is added to the scores
  /// (B, M, H), at most 0, finite; undefined: 0. The sum of log_decay_t over j < t <= i is added to
  /// the score of query i and key j: a forget gate. Lin et al. 2025 (arXiv 2503.02130), eq. 3-4.
  Variable log_decay{};
  /// (B, M, H), finite; undefined: 0. key_bias_j is added to the scores of key j, for every query.
  Variable key_bias{};
  /// (H); undefined: -inf. The score of one more key for all queries of a head, whose value is 0: e^sink is
  /// added to normalisers. Xiao et al. 2023 (arXiv 2309.17453).
  Variable sink{};
  /// Weights are σ(s_ij) = 1 / (1 + e^(-s_ij)), not normalised, in place of a softmax. Without log_decay, sink
  /// and sums. Ramapuram et al. 2024 (arXiv 2409.04431).
  bool sigmoid = false;
  /// Of the probabilities, as ProbabilityDropout says; its section is that of the heads that q has.
  DropoutOptions dropout{};
  /// The index of the first query among the keys. By default 0, and all keys have queries.
  std::optional<int64_t> first_query{};
  /// The index of the first key, an even one, if k and v are a block of the keys of a sequence. Then
  /// first_query is any index of that sequence. Without log_decay and pattern.
  std::optional<int64_t> first_key{};
};

/// softmax(τ QKᵀ + bias) V for every head: q (B, N, H, D), k and v (B, M, Hkv, D), where H is a
/// multiple of Hkv and query head h uses key head h Hkv / H. The result is (B, N, H, D), row-major.
/// Operands may have any strides; they are copied only if the rows of D numbers are not contiguous.
/// The result and the gradients of a query with no key to attend to are 0, as are the gradients of
/// keys that no query attends to; the values of such queries and keys are not used. Scores may have
/// any finite magnitude. Gradients take probabilities from L = log Σ e^s, which is rounded: their relative error is that
/// of L times |L|, in f32 about 1 % where scores are near 10⁵.
///
/// For the gradients, saves the inputs, the result and one number per query and head, and recomputes
/// the probabilities. Gives the same bits for any number of threads.
///
/// Differentiable with respect to q, k, v, log_decay, key_bias and sink.
///
/// Throws ShapeError if shapes or dtypes do not match, or for causal, window, slopes or log_decay if
/// not every query is one of the keys, or for a pattern of other sizes, and ConfigError for a dropout outside [0, 1), a negative
/// window, a pattern of empty blocks, one of odd blocks of keys with dropout, a log_decay that is not causal, or
/// a log_decay, a sink or sums with sigmoid weights.
Variable softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                           const SoftmaxAttentionOptions& options);

struct SoftmaxAttentionResult {
  Variable out;  // (B, N, H, D)
  Variable
      log_sums;  // (B, H, N): log Σ_j e^(s_ij), the sink included; -inf where a query attends to nothing
};
/// softmax_attention() and the logarithms of its normalisers, to be joined with other sums. Both are
/// differentiable.
SoftmaxAttentionResult softmax_attention_with_sums(const Variable& q, const Variable& k,
                                                   const Variable& v,
                                                   const SoftmaxAttentionOptions& options);

/// What softmax_attention() of a block of keys adds to the gradients dq, dk and dv, of the shapes of q, k
/// and v, and contiguous. `out` (B, N, H, D) and `log_sums` (B, H, N) are the results for all blocks, and
/// dout is the gradient of `out`: it is that of the sum over all blocks. Throws as softmax_attention()
/// does, and ConfigError for a log_decay, key_bias, sink or sigmoid weights.
void add_softmax_attention_gradients(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& out, const Tensor& log_sums, const Tensor& dout,
                                     const SoftmaxAttentionOptions& options, Tensor& dq, Tensor& dk,
                                     Tensor& dv);

}  // namespace longhand::attention
