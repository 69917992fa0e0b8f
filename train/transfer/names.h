// Names of Transformer weights in other programs: tables that are read in both directions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// A tensor of another program and its counterpart here. In names, "#" stands for a block's number,
/// and "*" for "weight" and "bias" in turn.
struct NameLine {
  std::string theirs;  // empty: the other program has no such tensor, which counts as 0
  /// The tensors here whose rows it stacks in this order, equally many of each; empty: not needed.
  std::vector<std::string> ours;
  /// A matrix that is stored as (in, out) if NameScheme::transposed, as by Conv1D of GPT-2.
  bool matrix = false;
  /// With model.tied_embeddings, it equals this tensor.
  std::string copy_of{};
  /// This tensor's first row is added to every row; written as NameScheme::segments rows of zeros.
  std::string plus_first_row_of{};
  int64_t skipped = 0;  // leading rows that are not used, written as zeros
};

/// The names of one program.
struct NameScheme {
  std::string name;   // of --names
  std::string title;  // "nanoGPT"
  /// The prefix of names of the model without its head. Files may have another prefix, or none.
  std::string backbone;
  /// A name, after `backbone`, that only files of this program have.
  std::string anchor;
  std::vector<NameLine> lines;
  /// Options of [model] with the values, as TOML, that correspond to the program.
  std::vector<std::pair<std::string, std::vector<std::string>>> needs;
  bool transposed = false;
  int64_t segments = 0;  // rows of NameLine::plus_first_row_of, which distinguish files

  /// Throws ConfigError, naming the option and its possible values, for a model that the program
  /// does not have.
  void check_model(const attention::TransformerConfig& model) const;
};

/// Returns all schemes: see name_schemes.cpp.
const std::vector<NameScheme>& name_schemes();

/// Returns the scheme with this name, or null for "longhand", Longhand's own names. Throws
/// ConfigError for other names.
const NameScheme* find_scheme(const std::string& name);
/// Returns the scheme that these names follow, or null if they follow none. Throws ConfigError if
/// they follow several.
const NameScheme* detect_scheme(const nn::StateDict& theirs);

/// A state under Longhand's names.
struct Translated {
  nn::StateDict state{};  // tensors without a counterpart keep their names
  /// The names that tensors have, or would have, in the file, by their names here.
  std::map<std::string, std::string> theirs{};
};
/// Translates the names of tensors; Longhand's own names are kept. If all biases of a scheme are
/// missing, they are 0. Throws ConfigError as check_model() does, DataError for shapes that cannot
/// be divided, and for a head that differs from the embeddings to which `model` ties it.
Translated from_names(const NameScheme& scheme, const nn::StateDict& theirs,
                      const attention::TransformerConfig& model);
/// The inverse. Throws ConfigError for a model the scheme has no names for, naming its tensors.
nn::StateDict to_names(const NameScheme& scheme, const nn::StateDict& ours,
                       const attention::TransformerConfig& model);

/// Replaces prefixes of names: "encoder.=" removes one, "fc.=head." changes one. The first match is
/// used for each name. Throws ConfigError for a rule without "=" or without a match, and if names
/// become equal.
nn::StateDict renamed(const nn::StateDict& state, const std::vector<std::string>& rules);

}  // namespace longhand::train
