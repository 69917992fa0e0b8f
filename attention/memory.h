// Memory: what attention takes, as formulas of its sizes, before anything is constructed.
#pragma once

#include <cstdint>

namespace longhand::attention {

struct Config;

/// A batch of B sequences of N queries and M keys. Sizes may be too large to be computed with, so
/// formulas are in double.
struct Extent {
  double batch = 1, queries = 1, keys = 1;
  bool training = true;  // gradients will be taken, and dropout is active
};

/// The memory of a variant, in numbers of 4 bytes. Every variant declares it next to its options,
/// from what its operations keep; tests compare it with measurements. Small terms that no large
/// size multiplies are left out.
///
/// `kept`, `forward` and `backward` come in addition to q, k, v and the result, which are counted
/// with H heads each (of q, k and v only v without Capabilities::uses_queries_and_keys), and
/// `backward` in addition to their gradients. They are negative where a variant needs less than
/// that, because it keeps something else instead of keys, for example.
struct Memory {
  double parameters = 0;  // trained numbers
  double buffers = 0;     // other state
  double kept = 0;        // from forward() to the gradients; without them, until forward() ends
  double forward = 0;     // at the peak of forward(), besides `kept`
  double backward = 0;    // at the peak of the gradients, besides `kept`
  /// Keys and values with kv_heads heads are read as they are, not copied for all heads.
  bool shares_heads = false;
};

/// Sizes of which formulas consist, in numbers.
struct MemorySizes {
  double H, D;    // heads, width of a head
  double tokens;  // of the queries in a batch, for all heads: B N H
  double values;  // of queries, or of the result: B N H D
  double keys;    // of keys, or of values: B M H D
  double pairs;   // of queries and keys: B H N M

  MemorySizes(const Config& config, const Extent& e);
};

/// The memory of FeatureAttention with m features. `kept_features` numbers are kept for the
/// features, and `written` numbers are the features of queries and keys in memory: 0 if they are
/// computed tile by tile.
Memory feature_memory(const Config& config, const Extent& e, double m, double kept_features,
                      double written);

/// States of m D numbers that a scan keeps for its gradients: one for every four of its blocks.
double kept_scan_states(const Config& config, const Extent& e, double m);

}  // namespace longhand::attention
