#include "longhand/attention/ops/tile/head_pairs.h"
#include "longhand/attention/ops/tile/row_blocks.h"
#include "longhand/attention/ops/tile/scan_over_blocks.h"

namespace longhand::attention::tile {

template <class T>
using HeadPairsBlocks = RowBlocks<T, HeadPairs<T>>;

ScanPasses head_passes(DType dtype) { return passes_over<HeadPairsBlocks>(dtype); }

}  // namespace longhand::attention::tile
