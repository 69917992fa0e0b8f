// Conversion of a trained model: its blocks' linear layers become low-rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// How the rank of a layer is chosen. One of the members is nonzero.
struct LowRankRule {
  int64_t rank = 0;   // the same for all layers, at most the smaller size of each
  double energy = 0;  // the smallest rank that keeps this fraction of the sum of σ²

  /// Parses "16" as a rank and "0.95" as a fraction of the energy. Throws ConfigError for other
  /// text, a rank below 1, and an energy outside (0, 1].
  static LowRankRule parse(const std::string& text);
};

/// A linear layer before and after conversion.
struct ConvertedLayer {
  /// The layer of the new model. Its rank is 0 if it stays full because the two factors would have
  /// at least as many elements as the weight.
  attention::LinearLayer layer;
  int64_t chosen = 0;  // the rank that the rule chooses
  double energy = 1;   // Σ σ² of the kept singular values over that of all
  double error = 0;    // |W - B A| / |W| in the Frobenius norm, with B and A as stored

  bool is_full() const { return layer.rank == 0; }
};

/// A converted model.
struct Conversion {
  std::vector<ConvertedLayer> layers;  // in the order of TransformerConfig::low_rank
  attention::TransformerConfig before, after;
  int64_t parameters_before = 0, parameters_after = 0;  // of the whole model
  /// The new weights, with their configuration. There is no optimizer state and no average: the
  /// averaged weights are converted if there are any.
  Checkpoint checkpoint;
};

/// Replaces each weight of the blocks' linear layers by the two factors of its truncated SVD, where
/// that makes the layer smaller; see nn::low_rank_factors(). Other tensors are unchanged. The
/// result is checked by loading it into a model. Throws ConfigError if the model already has
/// low-rank layers, and if no layer would become smaller; DataError for weights that are not finite
/// or belong to a model other than the configuration describes.
Conversion convert_to_low_rank(const SavedModel& model, const LowRankRule& rule);

}  // namespace longhand::train
