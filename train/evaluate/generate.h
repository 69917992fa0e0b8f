// generate: text from a byte-level language model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "longhand/attention/model/transformer.h"

namespace longhand::train {

struct GenerateOptions {
  int64_t tokens = 200;
  double temperature = 1;  // divides the logits; 0: the most likely token (the first on ties)
  int64_t top_k = 0;       // sample from this many most likely tokens; 0: all
  uint64_t seed = 0;
};

/// Continues a text with a causal byte-level model and returns the new bytes. Token i is sampled
/// with number i of the seed's stream. An empty prompt counts as a newline. `on_byte`, if given, is
/// called for each new byte; returning false ends the text. Throws ConfigError for a model that is
/// not a byte-level language model, and for options out of range.
///
/// The model reads the last max_length bytes of the prompt in one pass, then the new bytes.
/// Whenever it has read max_length bytes, it restarts from the last half of them, again in one
/// pass. Any other byte costs one step of a TransformerDecoder, regardless of the text's length.
/// Variants that cannot decode token by token read the whole context for every byte.
std::string generate(attention::Transformer& model, std::string_view prompt,
                     const GenerateOptions& options, const std::function<bool(char)>& on_byte = {});

}  // namespace longhand::train
