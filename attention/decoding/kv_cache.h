// What decoders of several variants share.
#pragma once

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// (B, G, D) to (B, H, D): each head gets that of its group.
Tensor repeat_groups(const Tensor& x, int64_t heads);

/// The weight of key j for query i is e^s_ij, or with `normalized` e^s_ij / sum_j e^s_ij.
struct CacheScores {
  double scale = 1;       // s_ij = scale q_i·k_j
  bool distance = false;  // s_ij = -scale |q_i - k_j|² / 2 instead
  bool normalized = true;
  int64_t window = 0;            // if not 0, only keys with i - j < window
  std::vector<double> slopes{};  // of each head, H or none: s_ij gets -slope (i - j)
};

/// Attention to all keys and values so far, which it keeps: (B, G, t, D) each.
std::unique_ptr<Decoder> make_cache_decoder(int64_t batch, const Config& config,
                                            const CacheScores& scores);
/// Bytes that it keeps of one sequence after that many tokens.
int64_t cache_bytes(const Config& config, DType dtype, int64_t tokens);

}  // namespace longhand::attention
