// The part of a batch that a rank has, if sequences are cut over ranks.
#pragma once

#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/data/dataset.h"

namespace longhand::train {

/// The tokens of this part, (B, n); also their targets, if there is one a token. Behind the end of the
/// sequences there are tokens 0 without targets. Lengths remain those of whole sequences, which is what
/// the model expects. The batch itself if sequences are not cut.
data::Batch part_of(const data::Batch& batch, const attention::SequencePart& part);

}  // namespace longhand::train
