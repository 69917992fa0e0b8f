// Decoding with a cache of keys and values.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// (B, G, D) to (B, H, D): each of the G heads repeated H / G times.
Tensor repeat_groups(const Tensor& x, int64_t heads);

/// The weight of key j for query i is e^s_ij, or with `normalized` e^s_ij / sum_j e^s_ij.
struct CacheScores {
  double scale = 1;       // s_ij = scale q_i·k_j
  bool distance = false;  // s_ij = -scale |q_i - k_j|² / 2 instead
  bool normalized = true;
  int64_t window = 0;  // if not 0, only keys with i - j < window
  /// The only keys that the query of a token and head attends to, as runs [begin, end) in increasing
  /// order, at least one key; empty: all.
  std::function<std::vector<std::pair<int64_t, int64_t>>(int64_t head, int64_t query)> parts{};
  /// If not 0, that of a cache of constant size, in which place() is where a token replaces an earlier
  /// one; `parts` are runs of places. Only with a scale and `parts`.
  int64_t capacity = 0;
  std::function<int64_t(int64_t token)> place{};
  int64_t most = 0;              // if not 0, only the keys with the `most` highest scores
  std::vector<double> slopes{};  // one a head, or none: -slope (i - j) is added to s_ij
  /// The log decay (B, H) of a token, or empty: Σ of those of the tokens t, j < t <= i, is added to
  /// s_ij.
  std::function<Tensor(const Token&)> log_decay{};
};

/// A decoder that caches all keys and values so far, (B, G, t, D) each, with a log_decay also the sums
/// of decays, (B, H, t) in f64, and attends to them. Throws ConfigError unless config.causal.
std::unique_ptr<Decoder> make_cache_decoder(int64_t batch, const Config& config,
                                            const CacheScores& scores);

}  // namespace longhand::attention
