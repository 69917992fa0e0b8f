// Queries that select the same block are gathered, so that their scores are matrix products, as in
// the authors' code. A query has one row per selected block, and its results are joined: with O_r
// and L_r = log Σ_j e^(s_ij) over the keys of its own block (r = 0) and of each selected one,
//
//   O_i = Σ_r e^(L_r) O_r / Σ_r e^(L_r)
#include "longhand/attention/ops/selected_blocks.h"

#include <algorithm>
#include <vector>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/take_rows.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"

namespace longhand::attention {
namespace {

constexpr int64_t tile = 48;  // rows that attend to one block together

// The rows of a sample, per head: rows of block 0, of block 1, …, each group padded to whole tiles
// with rows of its last query; after them, tiles without keys.
struct Rows {
  BlockPattern pattern;  // of tiles and blocks
  Tensor query;          // of each row, (B, H, rows) i32
  Tensor place;          // the row of query i and the n-th block on its list, (B, H, N most) i32
};

Rows rows_of(const Tensor& lists, int64_t block) {
  const int64_t B = lists.size(0), H = lists.size(1), N = lists.size(2), most = lists.size(3),
                blocks = (N + block - 1) / block,
                tiles =
                    (N * most + blocks * (tile - 1)) / tile + 1;  // at most, and one without keys
  // All heads of a dry run have the same lists.
  const int64_t samples = is_dry() ? 1 : B, heads = is_dry() ? 1 : H;
  Rows out{{.block = tile, .samples = samples, .heads = heads, .key_block = block},
           Tensor::zeros({B, H, tiles * tile}, DType::i32),
           Tensor::full({B, H, N * most}, static_cast<double>(tiles * tile - 1), DType::i32)};
  int32_t *const query = out.query.data<int32_t>(), *const place = out.place.data<int32_t>();
  const Tensor whole = lists.contiguous();
  const auto selected = [&](int64_t head, int64_t i, int64_t n) -> int64_t {
    if (is_dry()) return n < i / block ? n : -1;
    return whole.data<int32_t>()[(head * N + i) * most + n];
  };
  std::vector<int64_t> next(
      static_cast<size_t>(blocks));  // row of each group; at first, their count
  for (int64_t head = 0; head < samples * heads; ++head) {
    const auto for_pairs = [&](auto visit) {
      for (int64_t i = 0; i < N; ++i)
        for (int64_t n = 0; n < most; ++n) {
          const int64_t c = selected(head, i, n);
          if (c < 0) break;
          visit(i, n, static_cast<size_t>(c));
        }
    };
    std::fill(next.begin(), next.end(), 0);
    for_pairs([&](int64_t, int64_t, size_t c) { ++next[c]; });
    int64_t first = 0;  // row
    for (int64_t c = 0; c < blocks; ++c) {
      int64_t& count = next[static_cast<size_t>(c)];
      const int64_t begin = first;
      for (; first < begin + count; first += tile) out.pattern.add_row(c);
      count = begin;
    }
    for (int64_t t = first / tile; t < tiles; ++t) out.pattern.end_row();
    const auto put = [&](int64_t row, int64_t i) {
      query[head * tiles * tile + row] = static_cast<int32_t>(i);
    };
    for_pairs([&](int64_t i, int64_t n, size_t c) {
      put(next[c], i);
      place[(head * N + i) * most + n] = static_cast<int32_t>(next[c]++);
    });
    for (const int64_t stop : next)
      for (int64_t row = stop; row % tile != 0; ++row)
        put(row, query[head * tiles * tile + stop - 1]);
  }
  return out;
}

}  // namespace

Variable selected_blocks_attention(const Variable& q, const Variable& k, const Variable& v,
                                   const Tensor& lists, int64_t block, double scale) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2);
  check<ShapeError>(q.rank() == 4 && k.rank() == 4 && lists.rank() == 4 && block > 0 &&
                        k.size(1) == N && lists.shape().without_axis(3) == Shape{B, H, N},
                    "selected_blocks_attention: expected q (B, N, H, D), keys of its N tokens, "
                    "lists (B, H, N, most) and blocks of at least one token, got q ",
                    q.shape(), ", k ", k.shape(), ", lists ", lists.shape(), ", block ", block);
  tile::check_one_float_dtype("selected_blocks_attention", q.dtype(), k.dtype(), v.dtype());
  BlockPattern own{.block = block};
  for (int64_t c = 0; c * block < N; ++c) own.add_row(c);
  const SoftmaxAttentionResult near = softmax_attention_with_sums(
      q, k, v,
      {.scale = scale,
       .causal = true,
       .pattern = std::make_shared<const BlockPattern>(std::move(own))});
  const int64_t most = lists.size(3);
  if (most == 0) return near.out;
  Rows rows = rows_of(lists, block);
  const SoftmaxAttentionResult far = softmax_attention_with_sums(
      take_rows(q, rows.query), k, v,
      {.scale = scale, .pattern = std::make_shared<const BlockPattern>(std::move(rows.pattern))});
  const auto selected = [&](const Variable& of_rows) {  // (B, N, most, H, E)
    return reshape(take_rows(of_rows, rows.place), {B, N, most, H, of_rows.size(3)});
  };
  const Variable sums = transpose(near.log_sums, 1, 2),  // (B, N, H)
      of_rows = squeeze(selected(unsqueeze(transpose(far.log_sums, 1, 2), 3)), 4);
  const Variable weights = softmax(transpose(concat({unsqueeze(sums, 2), of_rows}, 2), 2, 3)),
                 of_selected = unsqueeze(transpose(slice(weights, 3, 1, 1 + most), 2, 3), 4);
  return near.out * slice(weights, 3, 0, 1) + sum(selected(far.out) * of_selected, {2});
}

}  // namespace longhand::attention
