// Sequences of tokens from CSV and JSON Lines.
#pragma once

#include <cstdint>
#include <filesystem>

#include "longhand/data/dataset.h"
#include "longhand/data/split.h"

namespace longhand::data {

/// Whether a path is CSV or JSON Lines of tokens: a file, or a folder with such a training file.
bool has_token_lines(const std::filesystem::path& path);

/// Reads a file, which is split by content, or a folder with a file for each split, but only those
/// in `splits`. A record has `tokens`, integers from 0, and `targets`: one class, or one for each
/// token (-100 is ignored); for other kinds, as many numbers, or labels 0 and 1, as the first
/// record has. JSON Lines have lists of numbers, CSV has numbers separated by blanks under a header
/// line. The vocabulary and classes are one more than the largest number. Throws DataError.
Task read_token_lines(const std::filesystem::path& path, const SplitFractions& fractions,
                      uint64_t seed, const Splits& splits, TargetKind kind = TargetKind::classes);

}  // namespace longhand::data
