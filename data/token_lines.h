// Sequences of tokens from CSV and JSON Lines.
#pragma once

#include <cstdint>
#include <filesystem>

#include "longhand/data/dataset.h"
#include "longhand/data/split.h"

namespace longhand::data {

/// Whether a path names records of tokens: a file or, by its training file, a folder of CSV or JSON Lines.
bool has_token_lines(const std::filesystem::path& path);

/// Reads a file, which is split by content, or a folder with a file for each split, of which those of
/// `splits` are read. A record has `tokens`, integers from 0, and `targets`: one class, or one for each
/// token (-100 is ignored); of another kind, as many numbers, or labels 0 and 1, as the first record
/// has. JSON Lines have lists of numbers, CSV has numbers separated by blanks under
/// a header line. The vocabulary and the classes are one more than the largest number. Throws DataError.
Task read_token_lines(const std::filesystem::path& path, const SplitFractions& fractions,
                      uint64_t seed, const Splits& splits, TargetKind kind = TargetKind::classes);

}  // namespace longhand::data
