// What the layers of a model send if its sequences are cut over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhand/attention/model/transformer_config.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

struct SequenceTraffic {
  std::string path;  // attention::name_of() that of the variant
  double bytes =
      0;  // that this rank sends for one layer in a forward and a backward pass, measured
  double seconds = 0;  // of both passes through the whole model, the least of three
};

/// Runs a forward and a backward pass of the model, which has one target a token, on one sequence of
/// max_length random tokens, cut over the ranks. Collective.
SequenceTraffic measure_sequence_traffic(Communicator& ranks,
                                         const attention::TransformerConfig& config);

}  // namespace longhand::train
