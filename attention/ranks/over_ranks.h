// Variants over ranks: attention to sequences of which each rank has a part.
#pragma once

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// How a variant computes attention over sequences that are cut over P ranks.
enum class SequencePath {
  gathered,  // every rank gathers all tokens and computes all of the attention: nothing is saved
  heads,     // whole sequences of H / P heads on every rank
  keys,      // keys and values of all tokens; every rank computes the queries of its part
  ring,  // the same, but keys and values are passed around: a rank has those of few parts at a time
  sums,  // sums over all tokens, of a size that does not depend on their number; causal: state
  state,      // the states after the parts before this one, of constant size
  landmarks,  // landmarks, and sums over tokens for each of them
  halo,       // tokens next to the part
  local,      // nothing
  parts       // what the variants that it consists of exchange
};
/// "gathered", "heads", …
const char* name_of(SequencePath path);

/// What a variant with these needs does: `divided`, if the number of ranks divides that of heads.
SequencePath sequence_path(Needs needs, bool causal, bool divided = true);
/// What a variant does if sequences are cut over this number of ranks.
SequencePath sequence_path(const Variant& variant, int ranks);

}  // namespace longhand::attention
