// Predictions of a trained model, example by example, and their files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/step/evaluation.h"

namespace longhand::train {

/// Predictions for all R targets that count, or for all R examples with numbers or labels, ordered
/// by example and, within it, by token.
struct Predictions {
  std::vector<int64_t> example;    // (R), from 0, in the order of the dataset
  std::vector<int32_t> position;   // (R), the token, from 0; empty for targets of whole sequences
  std::vector<int32_t> target;     // (R)
  std::vector<int32_t> predicted;  // (R) the class with the largest logit (the first on ties)
  Tensor values;                   // (R, C) f32: probabilities, logits or numbers
  /// Numbers (R, C) f32 or labels (R, C) u8, instead of `target` and `predicted`.
  Tensor targets;
  bool logits = false;
  Metrics metrics;  // bitwise identical to evaluate()

  int64_t size() const { return static_cast<int64_t>(example.size()); }
  /// Returns labels (R, C) u8: whether the probability is above 1/2.
  Tensor predicted_labels() const;
};

/// Predicts in the batches of evaluate_segments(): results do not depend on the number of threads,
/// and the metrics equal an evaluation's. `on_count`, if not empty, is called while targets are
/// counted, before any prediction, with the count so far, which finally is R; it may throw if the
/// results would be too large. Empty if should_stop ended it.
std::optional<Predictions> predict(const LogitsFn& model, const data::Dataset& dataset, bool logits,
                                   const EvaluationOptions& options = {},
                                   const std::function<void(int64_t)>& on_count = {});

/// Returns one JSON object per example, one per line:
///   {"example": 0, "target": 1, "prediction": 1, "probabilities": [0.2, 0.8]}
/// or, for per-token targets, lists:
///   {"example": 0, "positions": [7], "targets": [1], "predictions": [1], "probabilities": [[…]]}
/// For numbers and labels, target and prediction are lists; numbers have no probabilities. Numbers
/// are the shortest that read back as the same f32. `dataset` adds the "tokens" of each example.
std::string to_json_lines(const Predictions& predictions, const data::Dataset* dataset = nullptr);

/// Returns the tensors example (R) i64, position (R) i32 (for per-token targets), target (R) i32,
/// prediction (R) i32, and probabilities or logits (R, C) f32.
TensorFile to_tensors(const Predictions& predictions);

/// Throws ConfigError unless a file name ends in .jsonl, .h5, .npz or .safetensors. An empty name
/// means JSON Lines.
void check_predictions_path(const std::string& out);

/// Throws ConfigError if predictions and their file need more than `available` bytes of memory.
void check_predictions_memory(const std::string& out, int64_t targets, int64_t classes,
                              double available);

/// `dataset` as in to_json_lines(), used only for that format.
void write_predictions(const std::string& out, const Predictions& predictions,
                       const std::map<std::string, std::string>& metadata,
                       const data::Dataset* dataset = nullptr);

/// Replaces a configuration's data by a file: of its own task if that reads files, otherwise of the
/// task "tokens".
void read_data_from(const std::string& file, Config& config);

}  // namespace longhand::train
