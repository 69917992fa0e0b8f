#include "longhand/attention/ops/tile/channel_pairs.h"
#include "longhand/attention/ops/tile/row_blocks.h"
#include "longhand/attention/ops/tile/scan_over_blocks.h"

namespace longhand::attention::tile {
namespace {

template <class T>
using Blocks = RowBlocks<T, ChannelPairs<T>>;

}  // namespace

ScanPasses channel_passes(DType dtype) { return passes_over<Blocks>(dtype); }

}  // namespace longhand::attention::tile
