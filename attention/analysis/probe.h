// Probe: the queries, keys and values to analyse: a model's on given tokens, by layer and head, or
// random ones of given norm.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/attention/model/transformer.h"

namespace longhand::attention::analysis {

/// Queries, keys and values of one head of one sequence, in f64.
struct HeadInputs {
  Tensor q, k, v;  // (1, N, 1, D)
  int64_t layer = 0, head = 0, sequence = 0;

  int64_t length() const { return q.size(1); }
  int64_t dim() const { return q.size(3); }
};

/// The distribution of random inputs.
struct RandomInputs {
  int64_t length = 256, dim = 32;
  double norm = 4;  // root mean square norm of queries and keys: entries are N(0, norm² / D)
  double correlation = 0;  // of neighbouring tokens: x_i = c x_(i-1) + (1 - c²)^(1/2) e_i
  bool same_keys = false;  // keys are the queries: tokens attend to similar tokens
};
/// Random queries and keys, and values of N(0, 1) with the same correlation. Throws ConfigError for
/// sizes below 1, a negative norm, or a correlation outside [0, 1).
HeadInputs random_head(const RandomInputs& what, const Generator& generator);

/// Observes the attention of every layer of a model while this object exists: Variant::observe().
class ObservedLayers {
 public:
  using See =
      std::function<void(int64_t layer, const Inputs&, const Mask&, const Variable& result)>;
  /// The model must outlive this object.
  ObservedLayers(Transformer& model, const See& see);
  ~ObservedLayers();
  ObservedLayers(const ObservedLayers&) = delete;
  ObservedLayers& operator=(const ObservedLayers&) = delete;

 private:
  Transformer& model_;
};

/// The inputs of one layer's attention in a forward pass.
struct LayerInputs {
  int64_t layer = 0;
  std::string variant;
  /// q (B, N, H, D), rotated if the model rotates them; k and v (B, N, kv_heads, D), of another
  /// length if keys are mixtures of tokens; x (B, N, H D) for variants with Capabilities::uses_x.
  Inputs in{};
  std::vector<int64_t> lengths{};  // real tokens of each sequence
};
/// Runs a model on tokens (B, N) and lengths (B) (undefined: no padding) in evaluation mode, and
/// returns the inputs of each layer's attention. q and k are undefined if the weights do not depend
/// on them.
std::vector<LayerInputs> probe(Transformer& model, const Tensor& tokens, const Tensor& lengths);

/// The query heads of all sequences with their keys and values, without padding, in order of
/// layers, heads and sequences. Throws ConfigError if a layer has no queries and keys, or keys that
/// are mixtures of tokens.
std::vector<HeadInputs> heads_of(const std::vector<LayerInputs>& layers);

}  // namespace longhand::attention::analysis
