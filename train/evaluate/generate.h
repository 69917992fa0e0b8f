// generate: text from a language model, byte by byte.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "longhand/attention/model/transformer.h"

namespace longhand::train {

struct GenerateOptions {
  int64_t tokens = 200;
  double temperature = 1;  // divides the logits; 0: the likeliest token (the first on ties)
  int64_t top_k = 0;       // sample from this number of likeliest tokens; 0: all
  uint64_t seed = 0;
};

/// Continues a text with a causal model whose tokens are bytes, and returns the new bytes. Token i
/// is drawn with number i of the seed's stream. An empty prompt counts as a line end. `on_byte`, if
/// given, is called for each new byte; false ends the text. Throws ConfigError for a model that is not a byte-level
/// language model, and for options out of range.
///
/// The model reads the last max_length bytes of the prompt, in one pass, and what follows; whenever these
/// reach max_length bytes, it continues with the last half of them, read in one pass, too. Otherwise a byte
/// costs one step of a TransformerDecoder, however long the text is. Variants that cannot decode token by
/// token read the whole context for every byte.
std::string generate(attention::Transformer& model, std::string_view prompt,
                     const GenerateOptions& options, const std::function<bool(char)>& on_byte = {});

}  // namespace longhand::train
