// Loads the weights of a checkpoint into a model: all of them, or those that fit.
#pragma once

#include <string>
#include <vector>

#include "longhand/attention/model/transformer.h"
#include "longhand/core/error.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/config/sections.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// What a model has taken from a checkpoint: names of parameters and buffers.
struct Fresh {
  std::vector<std::string> initialised;  // of the model, not loaded
  std::vector<std::string> unused;       // of the checkpoint, not in the model
  std::vector<std::string> taken;        // of the model, loaded
  std::vector<std::string> drawn;        // random numbers of the model, kept on request
};

/// Calls f and prefixes its errors of type E with the name of a file.
template <class E = DataError, class F>
auto with_file_name(const std::string& name, F f) {
  try {
    return f();
  } catch (const E& error) {
    throw E(name + ": " + error.what());
  }
}

/// Returns the options of [model] that describe a model, by name.
EffectiveValues options_of_model(const attention::TransformerConfig& model);

/// How a model may differ from the checkpoint's.
struct LoadOptions {
  /// Tensors that belong to attention variants may be missing, unused or of a different shape.
  bool other_attention = false;
  /// The random numbers of variants (Capabilities::random) stay as the model was constructed with.
  bool new_draws = false;
  /// Any tensor may be missing, unused or of a different shape; the model then keeps its own.
  bool only_fitting = false;
};

/// Returns whether an assignment, such as "attention.type=linear", is to an option of [attention].
bool changes_attention(const std::vector<std::string>& assignments);

/// Copies the weights of a checkpoint into a model, averaged ones if the checkpoint has them.
/// Throws DataError for a checkpoint of a different model, naming options that differ before
/// tensors that do, and then changes nothing.
Fresh load_weights(attention::Transformer& model, const Checkpoint& checkpoint,
                   const LoadOptions& options = {});

/// Likewise, naming the file in errors.
Fresh load_weights(attention::Transformer& model, const SavedModel& saved,
                   const LoadOptions& options = {});

/// Throws DivergedError, naming `file` and the tensor, if a checkpoint's weights contain a
/// non-finite value.
void check_finite(const Checkpoint& checkpoint, const std::string& file);

/// Names as one line, with common parts written once: "blocks.{0-3}.mlp.{fc1,fc2}.{bias,weight}".
std::string short_list(const std::vector<std::string>& names);

/// How a model was initialised from a checkpoint.
struct Initialisation {
  Source source;
  Fresh tensors;
};

/// Initialises a model from a checkpoint: load_weights() with only_fitting. Throws ConfigError if
/// there is none, and if no matrix of the blocks (apart from attention variants) fits, naming the
/// options that differ; DataError for a damaged file.
Initialisation initialise(attention::Transformer& model, const InitOptions& options);

}  // namespace longhand::train
