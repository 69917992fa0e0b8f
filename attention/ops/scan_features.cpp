#include "longhand/attention/ops/tile/head_blocks.h"
#include "longhand/attention/ops/tile/scan_over_blocks.h"

namespace longhand::attention::tile {

ScanPasses feature_passes(DType dtype) { return passes_over<HeadBlocks>(dtype); }

}  // namespace longhand::attention::tile
