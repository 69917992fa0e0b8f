// The weights of a checkpoint in a model: all of them, or those that fit.
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
  std::vector<std::string> initialised;  // of the model, that were not loaded
  std::vector<std::string> unused;       // of the checkpoint, that the model does not have
  std::vector<std::string> taken;        // of the model, that were loaded
  std::vector<std::string> drawn;        // random numbers of the model that were kept as asked for
};

/// Calls f, whose errors of type E get the name of a file in front.
template <class E = DataError, class F>
auto with_file_name(const std::string& name, F f) {
  try {
    return f();
  } catch (const E& error) {
    throw E(name + ": " + error.what());
  }
}

/// The options of [model] that describe it, by name.
EffectiveValues options_of_model(const attention::TransformerConfig& model);

/// How a model may differ from that of the checkpoint.
struct LoadOptions {
  /// Tensors that belong to attention variants may be missing, unused or of another shape.
  bool other_attention = false;
  /// The random numbers of variants (Capabilities::random) are those that the model was constructed
  /// with.
  bool new_draws = false;
  /// Any tensor may be missing, unused or of another shape; the model keeps its own, then.
  bool only_fitting = false;
};

/// Whether one of these assignments, "attention.type=linear", is to an option of [attention].
bool changes_attention(const std::vector<std::string>& assignments);

/// Copies the weights of a checkpoint into a model, averaged ones where the checkpoint has them.
/// Throws DataError for a checkpoint of another model, naming the options that differ before the
/// tensors that do; nothing is changed then.
Fresh load_weights(attention::Transformer& model, const Checkpoint& checkpoint,
                   const LoadOptions& options = {});

/// The same, naming the file in errors.
Fresh load_weights(attention::Transformer& model, const SavedModel& saved,
                   const LoadOptions& options = {});

/// Throws DivergedError, naming `file` and the tensor, if the weights of a checkpoint hold a value that
/// is not finite.
void check_finite(const Checkpoint& checkpoint, const std::string& file);

/// Names as one line, with common parts written once: "blocks.{0-3}.mlp.{fc1,fc2}.{bias,weight}".
std::string short_list(const std::vector<std::string>& names);

/// How a model was initialised from a checkpoint.
struct Initialisation {
  Source source;
  Fresh tensors;
};

/// Initialises a model from a checkpoint: load_weights() with only_fitting. Throws ConfigError if there is none, and
/// if no matrix of its blocks (apart from those of attention variants) fits, naming the options that
/// differ; DataError for a damaged file.
Initialisation initialise(attention::Transformer& model, const InitOptions& options);

}  // namespace longhand::train
