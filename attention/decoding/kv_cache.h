// Decoding with a cache of keys and values.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// Repeats each of the G heads of x (B, G, D) H / G times: (B, H, D).
Tensor repeat_groups(const Tensor& x, int64_t heads);

/// Runs [begin, end) of keys, in increasing order.
using KeyRuns = std::vector<std::pair<int64_t, int64_t>>;

/// How queries attend to cached keys. The weight of key j for query i is e^s_ij / sum_j e^s_ij if
/// `normalized`, 1 / (1 + e^-s_ij) if `sigmoid`, otherwise e^s_ij.
struct CacheScores {
  double scale = 1;       // s_ij = scale q_i·k_j
  bool distance = false;  // s_ij = -scale |q_i - k_j|² / 2 instead
  bool normalized = true;
  bool sigmoid = false;  // only without `normalized`
  int64_t window = 0;    // if not 0, only keys with i - j < window
  /// Appends the runs of keys that a query of a head attends to, at least one key. Empty: all keys.
  std::function<void(int64_t head, int64_t query, KeyRuns& to)> parts{};
  /// If not 0, the capacity of a cache of constant size, in which a token is written to place(),
  /// replacing an earlier one; `parts` are runs of places. Only with a scale and `parts`.
  int64_t capacity = 0;
  std::function<int64_t(int64_t token)> place{};
  int64_t most = 0;  // if not 0, only the keys with the `most` highest scores; only with a scale
  std::vector<double> slopes{};  // one per head, or none: -slope (i - j) is added to s_ij
  std::vector<double> biases{};  // one per head, or none: added to s_ij
  std::vector<double> sinks{};   // one per head, or none: e^sink is added to the normaliser
  /// Returns the log decay (B, H) of a token; empty: none. Its sum over the tokens t,
  /// j < t <= i, is added to s_ij.
  std::function<Tensor(const Token&)> log_decay{};
  /// Called with each token but the first before storing its key; may modify the keys (B, G, t, D).
  std::function<void(const Token&, const Tensor& keys)> before{};
};

/// Keys and values of the tokens so far. The capacity doubles when it is exhausted.
class KeyValueCache {
 public:
  /// For B sequences with G heads of dimension D. A nonzero capacity is constant.
  KeyValueCache(int64_t batch, int64_t groups, int64_t dim, int64_t capacity = 0)
      : batch_(batch), groups_(groups), dim_(dim), constant_(capacity) {}

  /// Writes k and v (B, G, D) at a place, at most one past the last. Throws ShapeError.
  void put(int64_t place, const Tensor& k, const Tensor& v);
  /// Discards the tokens from this place on.
  void truncate(int64_t size) { size_ = size; }

  int64_t size() const { return size_; }
  int64_t capacity() const { return values_.defined() ? values_.size(2) : 0; }
  const Tensor& keys() const { return keys_; }  // (B, G, capacity, D)
  const Tensor& values() const { return values_; }
  /// Bytes of one token.
  int64_t token_bytes() const;
  int64_t bytes() const { return capacity() * token_bytes(); }
  /// The capacity once there have been `size` tokens at the same time.
  int64_t capacity_after(int64_t size) const;

 private:
  int64_t batch_, groups_, dim_, constant_, size_ = 0;
  Tensor keys_, values_;
};

/// Attention of one query per head to a cache. Allocates nothing but the result.
class CacheAttention {
 public:
  explicit CacheAttention(CacheScores scores) : scores_(std::move(scores)) {}

  /// Returns the result (B, H, D) of queries q (B, H, D) for runs of keys per sequence and head
  /// (B H), per head (H), or for all heads (1). `decays` are the sums of decays (B, H, capacity) in
  /// f64, or undefined; `bias` is added to the scores of the first `biased` keys.
  Tensor operator()(const Tensor& q, const KeyValueCache& cache, const std::vector<KeyRuns>& runs,
                    const Tensor& decays = {}, double bias = 0, int64_t biased = 0);

 private:
  CacheScores scores_;
  std::vector<double> sums_;  // (B, H, D): sums over blocks of keys
};

/// A decoder that caches all keys and values so far, (B, G, t, D) each, and attends to them; with a
/// log_decay also the sums of decays, (B, H, t) in f64. Throws ConfigError unless config.causal.
std::unique_ptr<Decoder> make_cache_decoder(int64_t batch, const Config& config,
                                            const CacheScores& scores);

}  // namespace longhand::attention
