// Decoding of attention to the tokens of the current block and to summaries of earlier blocks.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// How earlier blocks are summarised.
struct BlockSummaries {
  int64_t block = 1;     // tokens per block
  int64_t rows = 1;      // keys and values that represent a block
  bool queries = false;  // whether they depend on the queries of the block
  double bias = 0;       // added to their scores
  /// Returns the keys and values (B, rows, H, D) that represent a block of queries, keys and values
  /// (B, block, H, D).
  std::function<std::pair<Variable, Variable>(const Inputs& block)> of{};
};

/// A decoder that keeps the tokens of the current block and the summaries of earlier blocks, and
/// attends to both in one softmax of scores q·k / sqrt(D).
std::unique_ptr<Decoder> make_block_decoder(int64_t batch, const Config& config,
                                            const BlockSummaries& summaries);

}  // namespace longhand::attention
