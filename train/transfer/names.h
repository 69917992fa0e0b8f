// Names that other programs give to the weights of Transformers: tables, read in both directions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// A tensor of another program and what it is here. In names, "#" is the number of a block, and "*" stands
/// for "weight" and "bias" in turn.
struct NameLine {
  std::string theirs;  // empty: the other program has no such tensor, which counts as 0
  /// The tensors here whose rows it has, in this order, as many of each; empty: it is not needed.
  std::vector<std::string> ours;
  /// A matrix that is stored as (in, out) if NameScheme::transposed, as by Conv1D of GPT-2.
  bool matrix = false;
  /// With model.tied_embeddings, it equals this tensor.
  std::string copy_of{};
  /// The first row of this tensor is added to every row; it is written as NameScheme::segments rows of zeros.
  std::string plus_first_row_of{};
  int64_t skipped = 0;  // rows in front of its own, which are not used and written as zeros
};

/// The names of one program.
struct NameScheme {
  std::string name;   // of --names
  std::string title;  // "nanoGPT"
  /// How the names of the model without its head begin. Files may have another beginning, or none.
  std::string backbone;
  /// A name, after `backbone`, that files of this program and no others have.
  std::string anchor;
  std::vector<NameLine> lines;
  /// Options of [model] with the values, as TOML, that the program corresponds to.
  std::vector<std::pair<std::string, std::vector<std::string>>> needs;
  bool transposed = false;
  int64_t segments = 0;  // rows of NameLine::plus_first_row_of, by which files are told apart

  /// Throws ConfigError, naming the option and the values that are possible, for a model that the
  /// program does not have.
  void check_model(const attention::TransformerConfig& model) const;
};

/// All of them: see name_schemes.cpp.
const std::vector<NameScheme>& name_schemes();

/// The scheme of this name, or null for "longhand": the names are those of Longhand. Throws ConfigError
/// for another one.
const NameScheme* find_scheme(const std::string& name);
/// The scheme that these names are of, or null if they are of none. Throws ConfigError if they are of
/// several.
const NameScheme* detect_scheme(const nn::StateDict& theirs);

/// A state under Longhand's names.
struct Translated {
  nn::StateDict state{};  // tensors without a counterpart keep their names
  /// The names that tensors have in the file, or would have, by their names here.
  std::map<std::string, std::string> theirs{};
};
/// Translates the names of tensors. Those that are Longhand's already are kept. A scheme whose biases are
/// all missing was used without: they are 0. Throws ConfigError as check_model() does, DataError for
/// shapes that cannot be divided, and for a head that differs from the embeddings to which `model` ties it.
Translated from_names(const NameScheme& scheme, const nn::StateDict& theirs,
                      const attention::TransformerConfig& model);
/// The reverse. Throws ConfigError for a model that the scheme has no names for, naming its tensors.
nn::StateDict to_names(const NameScheme& scheme, const nn::StateDict& ours,
                       const attention::TransformerConfig& model);

/// Replaces the beginnings of names: "encoder.=" removes one, "fc.=head." changes one. The first
/// that fits a name is used. Throws ConfigError for one without "=", for one that no name begins with, and for
/// names that become equal.
nn::StateDict renamed(const nn::StateDict& state, const std::vector<std::string>& rules);

}  // namespace longhand::train
