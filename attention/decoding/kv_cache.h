// Decoding with a cache of keys and values.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// (B, G, D) to (B, H, D): each of the G heads repeated H / G times.
Tensor repeat_groups(const Tensor& x, int64_t heads);

/// Runs [begin, end) of keys, in increasing order.
using KeyRuns = std::vector<std::pair<int64_t, int64_t>>;

/// The weight of key j for query i is e^s_ij, with `normalized` e^s_ij / sum_j e^s_ij, or with `sigmoid`
/// 1 / (1 + e^-s_ij).
struct CacheScores {
  double scale = 1;       // s_ij = scale q_i·k_j
  bool distance = false;  // s_ij = -scale |q_i - k_j|² / 2 instead
  bool normalized = true;
  bool sigmoid = false;  // only without `normalized`
  int64_t window = 0;    // if not 0, only keys with i - j < window
  /// Appends the only keys that the query of a token and head attends to, at least one; empty: all.
  std::function<void(int64_t head, int64_t query, KeyRuns& to)> parts{};
  /// If not 0, that of a cache of constant size, in which place() is where a token replaces an earlier
  /// one; `parts` are runs of places. Only with a scale and `parts`.
  int64_t capacity = 0;
  std::function<int64_t(int64_t token)> place{};
  int64_t most = 0;  // if not 0, only the keys with the `most` highest scores; only with a scale
  std::vector<double> slopes{};  // one per head, or none: -slope (i - j) is added to s_ij
  std::vector<double> biases{};  // one per head, or none: added to s_ij
  std::vector<double> sinks{};   // one per head, or none: e^sink is added to sums of `normalized`
  /// The log decay (B, H) of a token, or empty: Σ of those of the tokens t, j < t <= i, is added to
  /// s_ij.
  std::function<Tensor(const Token&)> log_decay{};
  /// Called with each token but the first before its key is kept: may change the keys so far, (B, G, t, D).
  std::function<void(const Token&, const Tensor& keys)> before{};
};

/// Keys and values of the tokens so far, with room for more, which doubles when it is full.
class KeyValueCache {
 public:
  /// Of B sequences, with G heads of dimension D. A capacity that is not 0 is constant.
  KeyValueCache(int64_t batch, int64_t groups, int64_t dim, int64_t capacity = 0)
      : batch_(batch), groups_(groups), dim_(dim), constant_(capacity) {}

  /// Writes k and v (B, G, D) at a place, at most one behind the last. Throws ShapeError.
  void put(int64_t place, const Tensor& k, const Tensor& v);
  /// Forgets the tokens from this place on.
  void truncate(int64_t size) { size_ = size; }

  int64_t size() const { return size_; }
  int64_t capacity() const { return values_.defined() ? values_.size(2) : 0; }
  const Tensor& keys() const { return keys_; }  // (B, G, capacity, D)
  const Tensor& values() const { return values_; }
  /// Those of one token.
  int64_t token_bytes() const;
  int64_t bytes() const { return capacity() * token_bytes(); }
  /// The capacity when there have been `size` tokens at once.
  int64_t capacity_after(int64_t size) const;

 private:
  int64_t batch_, groups_, dim_, constant_, size_ = 0;
  Tensor keys_, values_;
};

/// Attention of one query of each head to a cache, which allocates nothing but its result.
class CacheAttention {
 public:
  explicit CacheAttention(CacheScores scores) : scores_(std::move(scores)) {}

  /// The result (B, H, D) for queries q (B, H, D) to the runs of keys of each head of each sequence (B H), of
  /// each head (H), or of all heads (1). With the sums of decays (B, H, capacity) in f64, or undefined; `bias` is added to the scores
  /// of the first `biased` keys.
  Tensor operator()(const Tensor& q, const KeyValueCache& cache, const std::vector<KeyRuns>& runs,
                    const Tensor& decays = {}, double bias = 0, int64_t biased = 0);

 private:
  CacheScores scores_;
  std::vector<double> sums_;  // (B, H, D): sums over blocks of keys
};

/// A decoder that caches all keys and values so far, (B, G, t, D) each, with a log_decay also the sums
/// of decays, (B, H, t) in f64, and attends to them. Throws ConfigError unless config.causal.
std::unique_ptr<Decoder> make_cache_decoder(int64_t batch, const Config& config,
                                            const CacheScores& scores);

}  // namespace longhand::attention
