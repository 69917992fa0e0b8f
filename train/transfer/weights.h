// Exchange of model weights with files of other programs.
#pragma once

#include <string>
#include <vector>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/transfer/load_weights.h"
#include "longhand/train/transfer/names.h"

namespace longhand::train {

/// Returns a part of a checkpoint: "weights", used in evaluation and averaged if there is an
/// average; "model", being trained; "optimizer"; or "ema". Its metadata, which import_weights()
/// reads, is longhand, part, step, seed and config. `names` is the name of a NameScheme (only for
/// weights and model) or "longhand". Throws ConfigError for another part, and for one that the
/// checkpoint does not have.
TensorFile export_part(const Checkpoint& checkpoint, const std::string& part,
                       const std::string& names = "longhand");

struct ImportOptions {
  /// Only tensors whose names have this prefix are taken, without it: "module.".
  std::string prefix{};
  std::vector<std::string> rename{};  // see renamed(), after the prefix
  /// The name of the file's NameScheme, "longhand", or "": detected from its names.
  std::string names{};
  /// Tensors may be missing, unused or of a different shape: the model keeps its initial values.
  bool partial = false;
};

/// A model whose weights come from a file.
struct Imported {
  Checkpoint checkpoint;  // without optimizer state
  Fresh tensors;          // which ones were taken
  int64_t parameters = 0;
  attention::TransformerConfig model{};
  const NameScheme* names = nullptr;  // the scheme used; null: Longhand's names
};

/// Makes the model that `config` describes, initialised from train.seed, and loads its weights from
/// the file. `config` must give the sizes that depend on data, as effective configurations do.
/// `name` is the file's name in errors. Throws ConfigError for an invalid configuration and a
/// prefix that no name has, and DataError listing every name and shape that does not fit.
Imported import_weights(const TensorFile& file, const Config& config, const std::string& name,
                        const ImportOptions& options = {});

}  // namespace longhand::train
