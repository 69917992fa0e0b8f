// Variants over ranks: attention when each rank holds a part of every sequence.
#pragma once

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// How a variant computes attention over sequences that are cut over P ranks.
enum class SequencePath {
  gathered,  // every rank gathers all tokens and computes all of the attention: nothing is saved
  heads,     // whole sequences of H / P heads on every rank
  keys,      // keys and values of all tokens; every rank computes the queries of its part
  ring,   // as keys, but keys and values are passed around: a rank holds only few parts at a time
  sums,   // sums over all tokens, of a size that does not depend on their number; causal: state
  state,  // the states after the parts before this one, of constant size
  landmarks,  // landmarks, and sums over tokens for each of them
  halo,       // tokens next to the part
  local,      // nothing is exchanged
  parts       // whatever its component variants exchange
};
/// "gathered", "heads", …
const char* name_of(SequencePath path);

/// The path for these needs; `divided`: whether the number of ranks divides the number of heads.
SequencePath sequence_path(Needs needs, bool causal, bool divided = true);
/// The path of a variant if sequences are cut over this number of ranks.
SequencePath sequence_path(const Variant& variant, int ranks);

}  // namespace longhand::attention
