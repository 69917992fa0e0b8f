// Contents of a dataset (examples, lengths, tokens, classes), and examples that two datasets share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/data/file.h"

namespace longhand::data {

struct Contents {
  int64_t examples = 0;
  int64_t shortest = 0, median = 0, longest = 0;  // tokens of an example
  int64_t tokens = 0;                             // in all
  int64_t different_tokens = 0;
  int32_t largest_token = 0;
  std::map<int32_t, int64_t> classes{};  // number of targets of each class that occurs
  int64_t ignored = 0;                   // targets that are ignore_index
  int64_t repeated = 0;                  // examples with the same tokens as an earlier one
  std::string hash{};                    // content_hash()
  std::vector<Digest> digests{};         // of the tokens of the different examples, sorted
};

/// Reads all examples. Throws DataError as the dataset does.
Contents contents_of(const Dataset& dataset);

/// The number of different examples that both have, compared by their tokens.
int64_t shared_examples(const Contents& a, const Contents& b);

}  // namespace longhand::data
