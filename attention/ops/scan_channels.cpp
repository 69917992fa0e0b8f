#include "longhand/attention/ops/tile/channel_pairs.h"
#include "longhand/attention/ops/tile/row_blocks.h"
#include "longhand/attention/ops/tile/scan_over_blocks.h"

namespace longhand::attention::tile {

template <class T>
using ChannelPairsBlocks = RowBlocks<T, ChannelPairs<T>>;

ScanPasses channel_passes(DType dtype) { return passes_over<ChannelPairsBlocks>(dtype); }

}  // namespace longhand::attention::tile
