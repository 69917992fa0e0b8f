// Predictions of a trained model, example by example, and files of them.
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

/// Predictions for all R targets that count, or for all R examples with numbers or labels, in the order of
/// the examples and of the tokens in them.
struct Predictions {
  std::vector<int64_t> example;    // (R), from 0, in the order of the dataset
  std::vector<int32_t> position;   // (R), from 0: the token; empty if targets are of sequences
  std::vector<int32_t> target;     // (R)
  std::vector<int32_t> predicted;  // (R) the class with the largest logit (the first on ties)
  Tensor values;                   // (R, C) f32: probabilities, logits or numbers
  /// Numbers (R, C) f32 or labels (R, C) u8; then there are no `target` and `predicted`.
  Tensor targets;
  bool logits = false;
  Metrics metrics;  // with the bits of evaluate()

  int64_t size() const { return static_cast<int64_t>(example.size()); }
  /// Of labels (R, C) u8: whether the probability is above 1/2.
  Tensor predicted_labels() const;
};

/// Predicts in the batches of evaluate_segments(), so that results do not depend on the number of
/// threads, and their metrics are those of an evaluation. `on_count`, unless empty, is called
/// while targets are counted, before anything is predicted, with the number so far, which at last is R;
/// it may throw if results of this size would be too large. Empty if should_stop ended it.
std::optional<Predictions> predict(const LogitsFn& model, const data::Dataset& dataset, bool logits,
                                   const EvaluationOptions& options = {},
                                   const std::function<void(int64_t)>& on_count = {});

/// One JSON object for each example, one per line:
///   {"example": 0, "target": 1, "prediction": 1, "probabilities": [0.2, 0.8]}
/// or, if targets are of tokens, lists:
///   {"example": 0, "positions": [7], "targets": [1], "predictions": [1], "probabilities": [[0.2, 0.8]]}
/// With numbers and labels, target and prediction are lists; numbers have no probabilities.
/// Numbers are the shortest that give the same f32. With the dataset, "tokens" are those of the example.
std::string to_json_lines(const Predictions& predictions, const data::Dataset* dataset = nullptr);

/// The tensors example (R) i64, position (R) i32 (if targets are of tokens), target (R) i32, prediction
/// (R) i32, and probabilities or logits (R, C) f32.
TensorFile to_tensors(const Predictions& predictions);

/// Throws ConfigError unless the name of a file ends in one of the formats .jsonl, .h5, .npz and
/// .safetensors. An empty name stands for JSON Lines.
void check_predictions_path(const std::string& out);

/// Throws ConfigError if predictions and their file do not fit into `available` bytes of memory.
void check_predictions_memory(const std::string& out, int64_t targets, int64_t classes,
                              double available);

/// `dataset` as in to_json_lines(); only for that format.
void write_predictions(const std::string& out, const Predictions& predictions,
                       const std::map<std::string, std::string>& metadata,
                       const data::Dataset* dataset = nullptr);

/// Replaces the data of a configuration by a file: of its task, if that reads files, else of the task
/// tokens.
void read_data_from(const std::string& file, Config& config);

}  // namespace longhand::train
