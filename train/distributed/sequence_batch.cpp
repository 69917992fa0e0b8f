#include "longhand/train/distributed/sequence_batch.h"

#include <algorithm>

namespace longhand::train {
namespace {

/// Columns begin … begin + n - 1 of x (B, N); those from N on are `behind`.
Tensor columns(const Tensor& x, int64_t begin, int64_t n, int32_t behind) {
  const int64_t N = x.size(1), first = std::min(begin, N), last = std::min(begin + n, N);
  if (last - first == n) return x.slice(1, first, last);
  Tensor out = Tensor::full({x.size(0), n}, behind, x.dtype());
  copy_into(out.slice(1, 0, last - first), x.slice(1, first, last));
  return out;
}

}  // namespace

data::Batch part_of(const data::Batch& batch, const attention::SequencePart& part) {
  if (!part.cut()) return batch;
  data::Batch out = batch;
  out.tokens = columns(batch.tokens, part.begin, part.tokens(), 0).contiguous();
  if (batch.targets.rank() == 2)
    out.targets =
        columns(batch.targets, part.begin, part.tokens(), data::ignore_index).contiguous();
  return out;
}

}  // namespace longhand::train
