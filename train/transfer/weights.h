// Weights of a model in and out of files of other programs.
#pragma once

#include <string>
#include <vector>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/transfer/load_weights.h"
#include "longhand/train/transfer/names.h"

namespace longhand::train {

/// A part of a checkpoint: "weights", those used in evaluation, which are averaged where the checkpoint
/// has an average; "model", those being trained; "optimizer"; "ema". It has metadata that
/// import_weights() reads: longhand, part, step, seed and config. Throws ConfigError for another part,
/// and for one that the checkpoint does not have.
/// `names` is that of a NameScheme, for weights and model alone, or "longhand".
TensorFile export_part(const Checkpoint& checkpoint, const std::string& part,
                       const std::string& names = "longhand");

struct ImportOptions {
  /// Only tensors whose names begin with this are taken, without it: "module.".
  std::string prefix{};
  std::vector<std::string> rename{};  // see renamed(), after the prefix
  /// The name of the NameScheme of the file, "longhand", or "": the one that its names are of.
  std::string names{};
  /// Tensors may be missing, unused or of another shape: the model keeps its initial values.
  bool partial = false;
};

/// A model whose weights are from a file.
struct Imported {
  Checkpoint checkpoint;  // has no state of an optimizer
  Fresh tensors;          // which were taken
  int64_t parameters = 0;
  attention::TransformerConfig model{};
  const NameScheme* names = nullptr;  // that was used; null: the names are Longhand's
};

/// Makes the model that `config` describes, initialised from train.seed, and takes its weights from the
/// file. `config` must give the sizes that depend on data, as effective configurations do. `name` is the
/// name of the file in errors. Throws ConfigError for an invalid configuration and a prefix that no
/// name has, DataError that lists every name and shape that does not fit.
Imported import_weights(const TensorFile& file, const Config& config, const std::string& name,
                        const ImportOptions& options = {});

}  // namespace longhand::train
