// Common to the tasks copy and selective_copy.
#pragma once

#include <cstdint>

#include "longhand/data/dataset.h"

namespace longhand::data {

/// Examples of `length` tokens: `count` symbols among blanks, a delimiter, and `count` blanks whose
/// targets are the symbols, in order; all other targets are ignored. Tokens: 0 is the blank,
/// 1 … symbols the symbols, symbols + 1 the delimiter. Without `scattered` the symbols come first,
/// one after the other, and then the blanks; with it every choice of places before the delimiter is
/// equally likely. Reads length, count, symbols and the sizes, whose defaults are given by the
/// first three.
struct CopyDefaults {
  int64_t length, count, symbols;
};
Task make_copying(const Options& options, uint64_t seed, const CopyDefaults& otherwise,
                  bool scattered);

}  // namespace longhand::data
