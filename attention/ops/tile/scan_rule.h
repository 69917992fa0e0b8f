// The description of a scan used by its blocks: sizes, operands, and division into groups.
#pragma once

#include <algorithm>
#include <limits>

#include "longhand/attention/ops/scan.h"
#include "longhand/attention/ops/tile/feature_rule.h"
#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/attention/ops/tile/state.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"

namespace longhand::attention::tile {

/// Returns the block size, at most max_scan_block, for which N tokens need the fewest
/// multiply-adds: `pair` per pair of tokens in a block, and `state` per token of a block that reads
/// a state and passes one on. Short sequences are one block, without a state. If `given` is not 0,
/// returns it; throws ShapeError, naming `op`, if it is too large.
inline int64_t tokens_of_block(const char* op, int64_t given, int64_t N, int64_t pair,
                               int64_t state, bool initial) {
  check<ShapeError>(0 <= given && given <= max_scan_block, op, ": expected blocks of 1 to ",
                    max_scan_block, " tokens, or 0, got ", given);
  if (given) return given;
  constexpr int64_t least = scan_block, most = max_scan_block;
  int64_t best = least, fewest = std::numeric_limits<int64_t>::max();
  for (int64_t n = (N + most - 1) / most; n <= (N + least - 1) / least; ++n) {
    const int64_t tokens = whole_lanes((N + n - 1) / n), blocks = (N + tokens - 1) / tokens;
    const int64_t products =
        pair * (tokens + lane_multiple) / 2 + state * (initial ? blocks : blocks - 1) / blocks;
    if (products < fewest) best = tokens, fewest = products;
  }
  return best;
}

/// Sizes of a scan or a delta rule, and its division of tokens into blocks.
struct TokenBlocks {
  int64_t B, N, H, m, E;
  bool initial;    // whether there is a state before the first block
  int64_t tokens;  // per block
  int64_t blocks = (N + tokens - 1) / tokens;

  /// Every kept_every-th of the states before blocks is saved for the gradients.
  static constexpr int64_t kept_every = 4;

  int64_t heads() const { return B * H; }
  /// Whether there is a state before a block; zeros are none.
  bool has_state(int64_t block_) const { return block_ > 0 || initial; }
  int64_t first(int64_t block_) const { return block_ * tokens; }
  int64_t count(int64_t block_) const { return std::min(tokens, N - block_ * tokens); }
};

struct ScanRule : TokenBlocks {
  FeatureRule features;
  bool normalizer, decays, channels;  // decays: has a log_decay; channels: one value per feature
  bool query_norm;                    // t of queries includes their norm too
  bool reverse;                       // from the last token to the first
  int64_t groups, blocks_of_group;

  ScanRule(const TokenBlocks& all, const FeatureRule& f, const ScanInputs& x,
           const ScanOptions& options)
      : TokenBlocks(all),
        features(f),
        normalizer(options.normalizer),
        decays(x.log_decay.defined()),
        channels(decays && x.log_decay.rank() == 4),
        query_norm(options.query_norm),
        reverse(options.reverse) {
    // The blocks of each head are divided into groups, each a task, if there are few heads to
    // process in parallel, or if sums in f32 would become too long.
    constexpr int64_t tasks = 16, least = 12, unit = kept_every, tokens_of_sum = 16384;
    groups = std::clamp<int64_t>(std::max((tasks + B * H - 1) / (B * H), N / tokens_of_sum), 1,
                                 std::max<int64_t>(1, blocks / least));
    blocks_of_group = ((blocks + groups - 1) / groups + unit - 1) / unit * unit;
    groups = (blocks + blocks_of_group - 1) / blocks_of_group;
  }
  using TokenBlocks::heads;
  int64_t lanes() const { return whole_lanes(tokens); }
  /// The i-th token of the scan.
  int64_t token(int64_t i) const { return reverse ? N - 1 - i : i; }
  /// Access to x (B, N, H, .) in the order of the scan.
  template <class T, class X>
  Heads<T> heads(X& x) const {
    Heads<T> out(x);
    if (reverse) out.data = out.at(0, N - 1, 0), out.token = -out.token;
    return out;
  }
  StateShape state() const { return {m, E, normalizer}; }
  int64_t state_size() const { return state().size(); }
  int64_t columns() const { return E + (normalizer ? 1 : 0); }
  int64_t decay_rows() const { return channels ? m : 1; }
};

/// The elements (head, i, …) of x (heads, ., .).
template <class T>
T* row(Tensor& x, int64_t head, int64_t i) {
  return x.data<T>() + (head * x.size(1) + i) * x.size(2);
}

/// Operands, and the scale c (B, H, N) of exponentials, as exponents of Base; a state of zeros has
/// the scale -inf.
struct ScanTensors {
  Tensor q, k, v, log_decay;  // the last may be undefined
  Tensor c;                   // undefined without exponentials
  Tensor initial_scale;       // (B H); undefined: -inf
  // Values that blocks compute for the results and need again for the gradients, (B H, blocks,
  // kept_size() of the blocks); undefined: they are recomputed.
  Tensor kept;
  bool has_kept = false;  // whether it has been filled: in the pass for the gradients

  template <class T>
  T* scales(const ScanRule& rule, int64_t head) {
    return c.defined() ? c.data<T>() + head * rule.N : nullptr;
  }
  /// The memory in which a block keeps its values, or null.
  template <class T>
  T* kept_of(int64_t head, int64_t block_) {
    return kept.defined() ? row<T>(kept, head, block_) : nullptr;
  }
  template <class T>
  T scale_at_start(int64_t head) const {
    if (!c.defined()) return 0;
    return initial_scale.defined() ? initial_scale.data<T>()[head] : -infinity<T>;
  }
};

/// Memory for values kept for the gradients, if it takes at most `most` bytes; otherwise undefined.
inline Tensor kept_memory(const Shape& shape, DType dtype, int64_t most) {
  const int64_t bytes = shape.numel() * static_cast<int64_t>(size_of(dtype));
  return 0 < bytes && bytes <= most ? Tensor::empty(shape, dtype) : Tensor();
}

/// Destinations of the gradients.
struct ScanGradients {
  Gradient q, k, v, log_decay;
};

/// The memory of a task: its blocks, with results for the keys of several of them, and some states.
struct TaskSize {
  int64_t slots = 0, states = 0;
  bool gradients = false;
};
template <class T, class Blocks>
struct Task {
  template <class Rule, class Operands>
  Task(const Rule& rule, const Operands& x, const TaskSize& size, Scratch& scratch)
      : blocks(rule, x, size.slots, size.gradients, scratch),
        states(scratch.take<T>(size.states * rule.state_size())) {}
  Blocks blocks;
  T* states;
};

// ---- weights of a block: A (keys, ld), A_ji of key j <= query i ---------------------------------
// A is zero below its diagonal. Products with it are computed in steps of 16 keys or queries, and
// skip steps of zeros, which are never written. A token may have several rows of A, one per key.
inline constexpr int64_t step = lane_multiple;

/// A_ji = (Σ_l f_jl g_li + δ_i) within_ji for f (keys, n), g (n, lanes), lanes of `count` tokens.
template <class T>
void pair_weights(int64_t count, int64_t n, kernels::Strided<T> f, const T* g, const T* delta,
                  const T* within, T* A, int64_t ld, int64_t keys = 1) {
  const int64_t lanes = whole_lanes(count);
  for (int64_t j = 0; j < count; j += step)
    kernels::gemm_tile<T>(keys * std::min(step, count - j), lanes - j, n,
                          {f.data + keys * j * f.row, f.row, f.col}, g + j, lanes,
                          A + keys * j * ld + j, ld, false);
  simd([=] {
    for (int64_t row = 0; row < keys * count; ++row) {
      T* const a = A + row * ld;
      const T* const w = within + row / keys * ld;
      const int64_t first = row / keys / step * step;
      for (int64_t i = first; i < lanes; ++i) a[i] = (a[i] + delta[i]) * w[i];
    }
  });
}

/// Sets A_jj to 0, leaving the weights of keys before a query.
template <class T>
void clear_diagonal(T* A, int64_t ld, int64_t count, int64_t keys) {
  for (int64_t row = 0; row < keys * count; ++row) A[row * ld + row / keys] = 0;
}

/// to_i = Σ_j A_ji row_j over j <= i; += with `add`. Keys are added in order, those of a token one
/// after the other.
template <class T>
void sum_earlier(const T* A, int64_t ld, const T* rows, int64_t token, int64_t count, int64_t n,
                 T* to, int64_t to_token, bool add, int64_t keys = 1) {
  for (int64_t i = 0; i < count; i += step)
    kernels::gemm_tile<T>(std::min(step, count - i), n, keys * std::min(i + step, count),
                          {A + i, 1, ld}, rows, token, to + i * to_token, to_token, add);
}

/// to_j = Σ_i A_ji row_i over i >= j; += with `add`.
template <class T>
void sum_later(const T* A, int64_t ld, const T* rows, int64_t token, int64_t count, int64_t n,
               T* to, int64_t to_token, bool add, int64_t keys = 1) {
  for (int64_t j = 0; j < count; j += step)
    kernels::gemm_tile<T>(keys * std::min(step, count - j), n, count - j,
                          {A + keys * j * ld + j, ld, 1}, rows + j * token, token,
                          to + keys * j * to_token, to_token, add);
}

/// to_i = rows_i; += with `add`.
template <class T>
void put_rows(const T* rows, int64_t count, int64_t n, T* to, int64_t ldt, bool add) {
  simd([=] {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t e = 0; e < n; ++e)
        to[i * ldt + e] = add ? to[i * ldt + e] + rows[i * n + e] : rows[i * n + e];
  });
}

}  // namespace longhand::attention::tile
