// What a variant supports, and the configuration that it is constructed with.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "longhand/core/options.h"

namespace longhand::attention {

/// What computing the results of some tokens requires from the other tokens of a sequence.
enum class Needs {
  tokens,      // all of them
  heads,       // all of them, but heads are independent of each other: Pass::heads
  keys,        // as heads, and queries need only keys and values of others: Pass::tokens
  key_blocks,  // as keys, and results over blocks of keys can be joined: Pass::join
  landmarks,   // landmarks, and sums over tokens for each of them
  sums,        // sums of a size that does not depend on the number of tokens; causal: a state
  state,       // the state after the tokens before them
  neighbours,  // the tokens next to them
  nothing,
  parts  // whatever its component variants need
};

/// What a variant supports and which properties hold for it, given its options. Immutable.
struct Capabilities {
  bool exact = false;            // computes exact softmax attention
  bool random = false;           // its result depends on random numbers, kept in checkpoints
  bool averages = true;          // the weights of one query sum to 1
  bool linear = true;            // its result is linear in v
  bool separate_queries = true;  // a query's result does not depend on other queries
  bool positional = false;       // permuting the tokens changes the result
  bool signed_weights = false;   // a sum of weights may be near 0, making the result inaccurate
  bool any_mask = false;         // applies Mask::keep and Mask::bias
  bool causal = false;           // supports causal attention
  std::string causal_reason{};   // why not, if not
  bool causal_only = false;      // has no form in which queries see later keys
  bool decodes = false;          // has a Decoder when causal
  bool uses_queries_and_keys = true;  // the weights depend on the values of q and k
  bool uses_keys = true;              // reads k; if not, its keys are computed from q
  bool cross_lengths = true;          // the number of keys may differ from the number of queries
  bool fixed_length = false;          // parameters are tied to max_length
  bool shortens = false;              // keys and values are compressed to fewer tokens: sources()
  bool uses_x = false;                // reads Inputs::x
  Needs needs = Needs::tokens;        // what tokens need from each other
  std::string time{}, memory{};       // per head, as "N m D"
  std::string state{"-"};             // what a checkpoint holds besides trained parameters
};

class Variant;

/// The configuration that a variant is constructed with.
struct Config {
  int64_t heads = 1;
  int64_t head_dim = 1;    // D
  int64_t kv_heads = 0;    // heads of keys and values, a divisor of heads; 0: equal to heads
  int64_t max_length = 1;  // maximum sequence length
  bool causal = false;
  int64_t layer = 0, layers = 0;  // index and number of layers; 0: unknown
  /// For later layers, the variant of the first layer of this type, which owns the parameters that
  /// layers share. It must outlive this variant.
  Variant* first = nullptr;
  Options options{"attention"};  // the [attention] section
  /// The registry sets these before it calls the constructor.
  std::string name{};
  Capabilities capabilities{};

  /// Channels of all heads, H D.
  int64_t width() const { return heads * head_dim; }
  /// The factor of q·k in softmax attention, 1 / sqrt(D).
  double softmax_scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
};

}  // namespace longhand::attention
