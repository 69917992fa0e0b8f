// Predictions in files, and of files.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "longhand/train/config/config.h"
#include "longhand/train/evaluate/predict.h"

namespace longhand::train {

/// Throws ConfigError unless the name of a file ends in one of the formats .jsonl, .h5, .npz and
/// .safetensors. An empty name stands for JSON Lines.
void check_predictions_path(const std::string& out);

/// Throws ConfigError if predictions and their file do not fit into `available` bytes of memory.
void check_predictions_memory(const std::string& out, int64_t targets, int64_t classes,
                              double available);

void write_predictions(const std::string& out, const Predictions& predictions,
                       const std::map<std::string, std::string>& metadata);

/// Replaces the data of a configuration by a file: of its task, if that reads files, else of the task
/// tokens.
void read_data_from(const std::string& file, Config& config);

}  // namespace longhand::train
