// Rabe & Staats 2021 (arXiv 2112.05682); Dao et al. 2022 (arXiv 2205.14135), algorithms 1 and 4;
// Dao 2023 (arXiv 2307.08691). With scores s_ij = τ q_i·k_j + bias_ij, L_i = log Σ_j e^(s_ij) and
// p_ij = e^(s_ij - L_i):
//
//   o_i = Σ_j p_ij v_j                      one tile at a time, with the maximum m so far:
//   m' = max(m, max_j s_ij),  l ← e^(m-m') l + Σ_j e^(s_ij-m'),  o ← e^(m-m') o + Σ_j e^(s_ij-m')
//   v_j and in the end o / l, L = m + log l
//
//   δ_i = do_i·o_i,  dp_ij = do_i·v_j,  ds_ij = p_ij (dp_ij - δ_i)
//   dv_j = Σ_i p_ij do_i,  dk_j = τ Σ_i ds_ij q_i,  dq_i = τ Σ_j ds_ij k_j
//
// The rows of a tile are keys and its columns queries: S = K Qᵀ. Vector lanes are therefore
// queries, maxima and sums over keys need no operations across lanes, and keys beyond a length are
// rows that are omitted.
//
// Several blocks of queries share each block of keys, which is copied once for all of them: in
// memory the rows of a head are one model width apart, and so map to few cache sets. On a Zen 3
// core both products of a tile run at 95 GFLOP/s on copies, at 87 on rows 1 KiB apart, and at 50 if
// 16,384 keys do not fit in the L2 cache.
//
// f32 uses base-2 logarithms and powers: Qᵀ is multiplied by τ log2 e.
//
// With biases b of keys and decays g, bias_ij = G_i + c_j with c_j = b_j - G_j, for the running
// sums G_i = Σ_(t<=i) g_t, in double precision. Within a block of queries that begins at token r
// both terms are relative to G_r, so that the biases of near keys keep their digits however large G
// is. Since Σ_j ds_ij = 0,
//
//   db_j = dc_j = Σ_i ds_ij,  dg_t = -Σ_(u>=t) dc_u
//
// If L is a result too, dL_i adds p_ij dL_i to ds_ij: it is subtracted from δ_i.
//
// A sink is added to o and L at the end (tile/sink.h). Sigmoid weights have neither m, l nor L:
//
//   p_ij = σ(s_ij),  o_i = Σ_j p_ij v_j,  ds_ij = p_ij (1 - p_ij) dp_ij
//
// With a pattern, blocks of queries lie within its blocks, and each lists the blocks of keys that
// it attends to. A task reads the tiles of keys in the union of its lists, and each of its blocks
// of queries uses the parts of a tile on its own list. The backward pass needs no lists of queries
// by key: it iterates over the keys of each group of queries too, and adds to dk and dv in memory,
// in a fixed order (see Groups).
#include "longhand/attention/ops/softmax_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/ops/tile/sink.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/prefetch.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/kernels/subnormals.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;
using namespace tile;

// Multiples of 16 lanes and 6 (12) rows. S takes half of the L1 cache, 18 KiB in f32.
constexpr int64_t query_block = 48, key_block = 96;  // maximum tokens per block
// Maximum number of whole blocks of queries that share keys. In the backward pass each block keeps
// three times as much data in the L2 cache.
constexpr int64_t forward_blocks = 8, backward_blocks = 4;
constexpr int64_t task_flops = int64_t{1} << 23;  // about 80 µs
// Blocks of keys that are summed directly in f32; longer sums are sums of such partial sums.
constexpr int64_t fold_blocks = 24;

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
Range common(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

struct Sizes {
  int64_t B, N, M, H, Hkv, D;
  int64_t span;  // queries per block of a pattern or of a narrow window, otherwise N
  int64_t blocks_of_span() const { return (span + query_block - 1) / query_block; }
  int64_t query_blocks() const { return (N + span - 1) / span * blocks_of_span(); }
  // Queries per block, as equal as the lanes allow: 64 queries are two blocks of 32.
  int64_t block_queries() const {
    const int64_t even = (span + blocks_of_span() - 1) / blocks_of_span();
    return whole_lanes(even);
  }
  // The number of these blocks that have the queries of `whole` blocks.
  int64_t blocks_of(int64_t whole) const {
    return std::max<int64_t>(whole, whole * query_block / block_queries());
  }
  Range queries(int64_t block) const {
    const int64_t begin = block / blocks_of_span() * span,
                  first = begin + block % blocks_of_span() * block_queries();
    return {std::min(first, N), std::min({first + block_queries(), begin + span, N})};
  }
  int64_t key_blocks() const { return (M + key_block - 1) / key_block; }
};

// The options in the form used by the kernels.
struct Rule {
  Sizes sizes;
  double scale;
  bool causal;
  int64_t window;
  std::vector<int32_t> key_lengths, query_lengths;
  std::vector<double> slopes;
  int64_t first_query, first_key;  // indices in the sequence
  ProbabilityDropout dropout;
  // G (B, H, M) and c (B, H, M) f64, as exponents of Base; undefined: 0.
  Tensor decays, key_bias;
  std::shared_ptr<const BlockPattern> pattern;
  int64_t keys_of_query;  // approximate number of keys that a query attends to
  bool sigmoid;

  const double* decays_of(int64_t b, int64_t h) const {
    return decays ? decays.data<double>() + (b * sizes.H + h) * sizes.M + first_query : nullptr;
  }
  const double* key_bias_of(int64_t b, int64_t h) const {
    return key_bias ? key_bias.data<double>() + (b * sizes.H + h) * sizes.M : nullptr;
  }
  // The keys that query i attends to. Both ends are non-decreasing in i.
  Range keys_of(int64_t b, int64_t i) const {
    const int64_t at = first_query + i - first_key;
    Range r{window ? std::max<int64_t>(0, at - window + 1) : 0, key_lengths[b]};
    if (causal)
      r.end = std::clamp<int64_t>(at + 1, 0, r.end);
    else if (window)
      r.end = std::clamp<int64_t>(at + window, 0, r.end);
    return {std::min(r.begin, r.end), r.end};
  }

  // With a pattern: the blocks of keys that query i attends to.
  std::span<const int32_t> blocks_of(int64_t b, int64_t h, int64_t i) const {
    const BlockPattern& p = *pattern;
    const int64_t rows = (sizes.N + p.block - 1) / p.block;
    const int64_t row =
        ((p.samples == 1 ? 0 : b) * p.heads + (p.heads == 1 ? 0 : h)) * rows + i / p.block;
    return {p.keys.data() + p.begin[row], p.keys.data() + p.begin[row + 1]};
  }
  // With a pattern, keys are read in tiles of as many of its blocks as fit, or of an equal part of
  // a block.
  int64_t blocks_of_tile() const {
    return std::max<int64_t>(1, key_block / pattern->keys_of_block());
  }
  int64_t tiles_of_block() const { return (pattern->keys_of_block() + key_block - 1) / key_block; }
  int64_t key_tiles() const {
    if (!pattern) return sizes.key_blocks();
    const int64_t tokens = blocks_of_tile() * pattern->keys_of_block();
    return (sizes.M + tokens - 1) / tokens * tiles_of_block();
  }
  Range key_tile(int64_t tile) const {
    const int64_t span = blocks_of_tile() * pattern->keys_of_block(), parts = tiles_of_block();
    const int64_t size = ((span + parts - 1) / parts + 1) & ~int64_t{1},
                  begin = tile / parts * span, first = begin + tile % parts * size;
    return {first, std::min({first + size, begin + span, sizes.M})};
  }
};

// The scores of one block of queries of one head against one block of keys at a time, in s
// (key_block, query_block), which several blocks may share.
template <class T>
class ScoreTile {
 public:
  ScoreTile(const Rule& rule, T* s, Scratch& scratch)
      : rule_(rule),
        q_(scratch.take<T>(rule.sizes.D * query_block)),
        s_(s),
        position_(scratch.take<T>(query_block)),
        of_query_(scratch.take<T>(query_block)),
        from_(scratch.take<int32_t>(query_block)),
        to_(scratch.take<int32_t>(query_block)),
        words_{scratch.take<uint32_t>(query_block), scratch.take<uint32_t>(query_block),
               scratch.take<uint32_t>(key_block), scratch.take<uint32_t>(key_block)} {}

  // Sets the block of queries, and with it keys() and blocks().
  void locate(int64_t b, int64_t h, int64_t block) {
    clear();
    const Range queries = rule_.sizes.queries(block);
    b_ = b, h_ = h, first_ = queries.begin, rows_ = std::max<int64_t>(0, queries.size());
    count_ = std::clamp<int64_t>(rule_.query_lengths[b] - first_, 0, rows_);
    lanes_ = whole_lanes(count_);
    if (count_ == 0) return;
    if (rule_.pattern) blocks_ = rule_.blocks_of(b, h, first_);
    const Range low = rule_.keys_of(b, first_), high = rule_.keys_of(b, first_ + count_ - 1);
    some_ = {low.begin, high.end};
    all_ = {high.begin, low.end};
  }
  // Reads the queries.
  void load(const Heads<const T>& q) {
    if (count_ == 0) return;
    const int64_t b = b_, h = h_;
    slope_ = rule_.slopes.empty() ? T{0} : static_cast<T>(rule_.slopes[h] * Base<T>::log_e);
    key_bias_ = rule_.key_bias_of(b, h);
    const double* const decays = rule_.decays_of(b, h);
    origin_ = decays ? decays[first_] : 0;
    for (int64_t i = 0; i < lanes_ && key_bias_; ++i)
      of_query_[i] =
          decays ? static_cast<T>(decays[first_ + std::min(i, count_ - 1)] - origin_) : T{0};
    pack_transposed(q.at(b, first_, h), q.token, count_, rule_.sizes.D,
                    static_cast<T>(rule_.scale * Base<T>::log_e), q_);
    for (int64_t i = 0; i < lanes_; ++i) {
      const Range keys = rule_.keys_of(b, first_ + std::min(i, count_ - 1));
      position_[i] = static_cast<T>(rule_.first_query + first_ + i - rule_.first_key);
      from_[i] = static_cast<int32_t>(keys.begin), to_[i] = static_cast<int32_t>(keys.end);
    }
    if (rule_.dropout.on())
      rule_.dropout.query_words(b * rule_.sizes.H + h, first_, lanes_, words_[0], words_[1]);
  }

  // Drops the queries: they then attend to nothing.
  void clear() {
    count_ = lanes_ = 0;
    some_ = all_ = {0, 0};
    blocks_ = {};
  }

  int64_t sample() const { return b_; }
  int64_t head() const { return h_; }
  int64_t first() const { return first_; }
  int64_t rows() const { return rows_; }    // of the block
  int64_t count() const { return count_; }  // of queries within the length
  int64_t lanes() const { return lanes_; }  // count and padding lanes, whose scores are meaningless
  // The keys that any of the queries attends to. The first index is even.
  Range keys() const { return {some_.begin & ~int64_t{1}, some_.end}; }
  // With a pattern: the blocks of keys.
  std::span<const int32_t> blocks() const { return blocks_; }
  // Calls visit(part) for each run of keys in `range` that the queries attend to. The first index
  // of the range is even, and so are those of the parts if blocks of keys are.
  template <class F>
  void for_parts(Range range, F visit) const {
    const Range all = common(keys(), range);
    if (all.size() <= 0) return;
    if (!rule_.pattern) {
      visit(all);
      return;
    }
    const int64_t block = rule_.pattern->keys_of_block();
    auto at = std::lower_bound(blocks_.begin(), blocks_.end(), all.begin / block);
    while (at != blocks_.end() && *at * block < all.end) {
      Range part{*at * block, (*at + 1) * block};
      for (++at; at != blocks_.end() && *at * block == part.end; ++at) part.end += block;
      visit(common(part, all));
    }
  }
  T* scores() { return s_; }  // (keys, lanes)

  // Scores against at most key_block keys k (., D); -inf where a query does not attend. The first
  // index is even if there is dropout, which hashes pairs of keys. If the number of keys is odd, a
  // row of -inf is added, because the loops process pairs of keys.
  void compute(Range keys, const T* k) {
    const int64_t lanes = lanes_, count = keys.size(), D = rule_.sizes.D;
    gemm_tile<T>(count, lanes, D, {k, D, 1}, q_, lanes, s_, lanes, false);
    if (count % 2) std::fill_n(s_ + count * lanes, lanes, -infinity<T>);
    const bool edge = keys.begin < all_.begin || keys.end > all_.end;
    if (edge || slope_ != 0 || key_bias_)
      simd([&, all = all_, s = s_, position = position_, from = from_, to = to_, slope = slope_,
            of_query = of_query_, key_bias = key_bias_, origin = origin_] {
        for (int64_t n = 0; n < count; ++n) {
          T* const row = s + n * lanes;
          const T at = static_cast<T>(keys.begin + n);
          if (slope != 0)
            for_lanes(lanes, [=](int64_t i) { row[i] -= slope * std::abs(position[i] - at); });
          if (key_bias) {
            const T of_key = static_cast<T>(key_bias[keys.begin + n] + origin);
            for_lanes(lanes, [=](int64_t i) { row[i] += of_query[i] + of_key; });
          }
          const int32_t j = static_cast<int32_t>(keys.begin + n);
          if (j < all.begin || j >= all.end)
            for_lanes(lanes, [=](int64_t i) {
              row[i] = j >= from[i] && j < to[i] ? row[i] : -infinity<T>;
            });
        }
      });
    if (rule_.dropout.on())
      rule_.dropout.key_words(b_ * rule_.sizes.H + h_, (rule_.first_key + keys.begin) / 2,
                              (count + 1) / 2, words_[2], words_[3]);
  }

  // Calls visit(dropout, lane, even key's element index, odd key's element index, keep even, keep
  // odd) for all pairs of elements. For use inside simd().
  template <class F>
  void for_pairs(int64_t keys, F visit) const {
    if (rule_.dropout.on())
      for_pairs<true>(keys, visit);
    else
      for_pairs<false>(keys, visit);
  }
  template <bool dropout, class F>
  void for_pairs(int64_t keys, F visit) const {
    const uint32_t *const a = words_[0], *const b = words_[1];
    const uint32_t threshold = rule_.dropout.threshold();
    const int64_t lanes = lanes_;
    for (int64_t n = 0; n < keys; n += 2) {
      const uint32_t c = dropout ? words_[2][n / 2] : 0, d = dropout ? words_[3][n / 2] : 0;
      for_lanes(lanes, [=](int64_t i) {
        const int64_t row = n * lanes + i;
        const uint32_t both = dropout ? dropout_hash(a[i], b[i], c, d) : 0;
        visit(std::bool_constant<dropout>(), i, row, row + lanes,
              !dropout || (both & 0xffff) >= threshold, !dropout || both >> 16 >= threshold);
      });
    }
  }

 private:
  const Rule& rule_;
  T *const q_, *const s_, *const position_, *const of_query_;  // q_ (D, lanes), G_i - G_r
  const double* key_bias_ = nullptr;                           // c of the head
  double origin_ = 0;                                          // G_r
  int32_t *const from_, *const to_;
  uint32_t* const words_[4];
  int64_t b_ = 0, h_ = 0, first_ = 0, rows_ = 0, count_ = 0, lanes_ = 0;
  std::span<const int32_t> blocks_;  // of keys, with a pattern
  Range some_{0, 0}, all_{0, 0};     // keys that some, and that all, queries attend to
  T slope_ = 0;
};

// σ(s) and its derivative, for use inside simd().
template <class T>
std::pair<T, T> sigmoid_of(T s) {
  const T e = Base<T>::power(-std::abs(s)), larger = 1 / (1 + e);
  return {s < 0 ? e * larger : larger, e * larger * larger};
}

// Copies rows [first, first + n) of a head to (n, D).
template <class T>
void copy_rows(const Heads<const T>& from, int64_t b, int64_t h, int64_t first, int64_t n,
               int64_t D, T* to) {
  for (int64_t i = 0; i < n; ++i) std::copy_n(from.at(b, first + i, h), D, to + i * D);
}

// Prefetches rows of a head. The blocks of a pattern are scattered in memory, where the hardware
// does not predict them.
template <class T>
void prefetch_rows(const Heads<T>& x, int64_t b, int64_t h, Range rows, int64_t D) {
  for (int64_t i = rows.begin; i < rows.end; ++i) kernels::prefetch(x.at(b, i, h), D);
}

// The keys that any query of the tiles attends to. The first index is even.
template <class T>
Range all_keys(std::span<const ScoreTile<T>> tiles) {
  Range all{0, 0};
  for (const ScoreTile<T>& tile : tiles) {
    const Range keys = tile.keys();
    if (keys.size() <= 0) continue;
    const bool none = all.size() == 0;
    all = {none ? keys.begin : std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  }
  return all;
}

// The indices of the tiles of keys of one of `count` groups, dealt in runs of `run` tiles.
struct KeyGroup {
  int64_t number = 0, count = 1, run = 1;
  bool has(int64_t tile) const { return tile / run % count == number; }
};

// The tiles of keys of a group that any of the tiles of queries attends to, in increasing order.
// Without a pattern they are numbered from the key `origin` on.
template <class T>
void list_key_tiles(const Rule& rule, std::span<const ScoreTile<T>> tiles, int64_t origin,
                    const KeyGroup& group, std::vector<Range>& out) {
  out.clear();
  const Range all = all_keys<T>(tiles);
  if (!rule.pattern) {
    for (int64_t tile = std::max<int64_t>(0, all.begin - origin) / key_block;; ++tile) {
      const int64_t j = origin + tile * key_block;
      if (j >= all.end) return;
      if (group.has(tile)) out.push_back({j, std::min(j + key_block, all.end)});
    }
  }
  const int64_t block = rule.pattern->keys_of_block(), together = rule.blocks_of_tile(),
                parts = rule.tiles_of_block();
  std::vector<int64_t> numbers;
  for (const ScoreTile<T>& tile : tiles) {
    int64_t latest = -1;
    for (const int32_t of_pattern : tile.blocks()) {
      const Range keys = common(tile.keys(), {of_pattern * block, (of_pattern + 1) * block});
      for (int64_t number = of_pattern / together * parts;
           keys.size() > 0 && number < of_pattern / together * parts + parts; ++number)
        if (number > latest && group.has(number)) numbers.push_back(latest = number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  for (const int64_t number : numbers) {
    const Range keys = common(rule.key_tile(number), all);
    if (keys.size() > 0) out.push_back(keys);
  }
}

// The accumulators of a block of queries. If there are many keys, o and l cover only the latest
// fold_blocks blocks; all_o and all_l cover the earlier ones and are relative to an earlier
// maximum: `rescale` is the factor that makes them relative to m.
template <class T>
struct Attended {
  T *o, *m, *l, *all_o = nullptr, *all_l = nullptr, *rescale = nullptr;

  Attended(const Sizes& z, Scratch& scratch) {
    scratch.take_each(z.D * query_block, o);
    scratch.take_each(query_block, m, l);
    if (z.key_blocks() <= fold_blocks) return;
    scratch.take_each(z.D * query_block, all_o);
    scratch.take_each(query_block, all_l, rescale);
  }

  void start(int64_t count, int64_t lanes, int64_t D) const {
    std::fill_n(m, lanes, -infinity<T>);
    std::fill_n(l, lanes, T{0});
    std::fill_n(o, count * D, T{0});
    if (!all_o) return;
    std::fill_n(all_l, lanes, T{0});
    std::fill_n(rescale, lanes, T{0});
    std::fill_n(all_o, count * D, T{0});
  }
  // Moves o and l to all_o and all_l, if those exist.
  void fold(int64_t count, int64_t lanes, int64_t D) const {
    if (!all_o) return;
    simd([=, *this] {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t d = i * D; d < (i + 1) * D; ++d) {
          all_o[d] = all_o[d] * rescale[i] + o[d];
          o[d] = 0;
        }
      for (int64_t i = 0; i < lanes; ++i) {
        all_l[i] = all_l[i] * rescale[i] + l[i];
        l[i] = 0;
        rescale[i] = 1;
      }
    });
  }
};

// Accumulates another block of keys k and values v (., D).
template <class T>
void attend(const Rule& rule, ScoreTile<T>& tile, Range keys, const T* k, const T* v,
            const Attended<T>& x) {
  const int64_t count = tile.count(), lanes = tile.lanes(), D = rule.sizes.D;
  tile.compute(keys, k);
  T* const s = tile.scores();
  simd([&, lanes, s, o = x.o, m = x.m, l = x.l, rescale = x.rescale] {
    if (rule.sigmoid) {
      tile.for_pairs(keys.size(),
                     [=](auto, int64_t, int64_t a, int64_t b, bool keep_a, bool keep_b) {
                       const T pa = sigmoid_of(s[a]).first, pb = sigmoid_of(s[b]).first;
                       s[a] = keep_a ? pa : T{0};
                       s[b] = keep_b ? pb : T{0};
                     });
      return;
    }
    T top[query_block], shift[query_block], shrink[query_block], sum[query_block] = {};
    std::copy_n(m, lanes, top);
    tile.template for_pairs<false>(keys.size(),
                                   [=, t = top](auto, int64_t i, int64_t a, int64_t b, bool, bool) {
                                     const T larger = s[a] < s[b] ? s[b] : s[a];
                                     t[i] = t[i] < larger ? larger : t[i];
                                   });
    for (int64_t i = 0; i < lanes; ++i) {
      shift[i] = top[i] == -infinity<T> ? T{0} : top[i];
      shrink[i] = m[i] == top[i] ? T{1} : Base<T>::power(m[i] - shift[i]);
      m[i] = top[i];
    }
    tile.for_pairs(keys.size(), [=, low = shift, total = sum](auto, int64_t i, int64_t a, int64_t b,
                                                              bool keep_a, bool keep_b) {
      const T pa = Base<T>::power(s[a] - low[i]), pb = Base<T>::power(s[b] - low[i]);
      total[i] += pa + pb;
      s[a] = keep_a ? pa : T{0};
      s[b] = keep_b ? pb : T{0};
    });
    for (int64_t i = 0; i < lanes; ++i) l[i] = l[i] * shrink[i] + sum[i];
    if (rescale)
      for (int64_t i = 0; i < lanes; ++i) rescale[i] *= shrink[i];
    for (int64_t i = 0; i < count; ++i)
      if (shrink[i] != 1)
        for (int64_t d = 0; d < D; ++d) o[i * D + d] *= shrink[i];
  });
  gemm_tile<T>(count, D, keys.size(), {s, 1, lanes}, v, D, x.o, D, true);
}

// A block of queries in the backward pass: rows of q and dO, dOᵀ (D, lanes) times τ, L, τ δ, and
// the accumulator of dq.
template <class T>
struct Attending {
  T *q, *dout, *dot, *l, *delta, *dq;

  Attending(int64_t D, Scratch& scratch) {
    scratch.take_each(query_block * D, q, dout, dot);
    scratch.take_each(query_block, l, delta);
    scratch.take_each(query_block * D, dq);
  }
};

// The memory of a task: a tile of keys and values, copied once for several blocks of queries that
// attend to it in turn; with `gradients`, also those of the keys and values, for the backward pass.
template <class T>
struct Task {
  Task(const Rule& rule, int64_t together, bool gradients, Scratch& scratch) {
    const int64_t pairs = key_block * query_block, of_keys = key_block * rule.sizes.D;
    scratch.take_each(pairs, scores);
    if (gradients) scratch.take_each(pairs, dscores);
    scratch.take_each(of_keys, keys, values);
    if (gradients) scratch.take_each(of_keys, dkeys, dvalues);
    for (int64_t r = 0; r < together; ++r) {
      tiles.emplace_back(rule, scores, scratch);
      if (gradients)
        attending.emplace_back(rule.sizes.D, scratch);
      else
        attended.emplace_back(rule.sizes, scratch);
    }
  }

  std::span<const ScoreTile<T>> first_tiles(int64_t count) const {
    return {tiles.data(), static_cast<size_t>(count)};
  }

  // Calls visit(tile, next) for each of key_tiles, after loading its keys and values of head hkv;
  // `next` is the following tile if there is a pattern, otherwise empty. Calls flush() after every
  // fold_blocks tiles, so that sums stay short, and at the end.
  template <class Visit, class Flush>
  void for_key_tiles(const Rule& rule, const Heads<const T>& k, const Heads<const T>& v, int64_t b,
                     int64_t hkv, Visit visit, Flush flush) {
    const int64_t D = rule.sizes.D;
    for (size_t i = 0; i < key_tiles.size(); ++i) {
      const Range tile = key_tiles[i];
      const bool apart = rule.pattern && i + 1 < key_tiles.size();
      const Range next = apart ? key_tiles[i + 1] : Range{0, 0};
      copy_rows(k, b, hkv, tile.begin, tile.size(), D, keys);
      copy_rows(v, b, hkv, tile.begin, tile.size(), D, values);
      prefetch_rows(k, b, hkv, next, D);
      prefetch_rows(v, b, hkv, next, D);
      visit(tile, next);
      if ((i + 1) % fold_blocks == 0) flush();
    }
    flush();
  }

  T *scores, *keys, *values;
  T *dscores = nullptr, *dkeys = nullptr, *dvalues = nullptr;
  std::vector<ScoreTile<T>> tiles;
  std::vector<Attended<T>> attended;    // of each of the tiles, in the forward pass
  std::vector<Attending<T>> attending;  // or in the backward pass
  std::vector<Range> key_tiles;
};

// The first `count` blocks of queries attend to all keys of head hkv.
template <class T>
void attend_to_all(const Rule& rule, Task<T>& task, int64_t count, const Heads<const T>& k,
                   const Heads<const T>& v, int64_t b, int64_t hkv) {
  const int64_t D = rule.sizes.D;
  const auto tiles = task.first_tiles(count);
  list_key_tiles<T>(rule, tiles, all_keys<T>(tiles).begin, {}, task.key_tiles);
  const auto attend_to = [&](Range keys, Range) {
    for (int64_t r = 0; r < count; ++r)
      task.tiles[r].for_parts(keys, [&](Range part) {
        const int64_t at = (part.begin - keys.begin) * D;
        attend(rule, task.tiles[r], part, task.keys + at, task.values + at, task.attended[r]);
      });
  };
  task.for_key_tiles(rule, k, v, b, hkv, attend_to, [&] {
    for (int64_t r = 0; r < count; ++r)
      task.attended[r].fold(tiles[r].count(), tiles[r].lanes(), D);
  });
}

// O and L of a block of queries; 0 and -inf where a query attends to nothing.
template <class T>
void write_result(const Rule& rule, const ScoreTile<T>& tile, const Attended<T>& x,
                  const Heads<T>& out, T* lse) {
  const int64_t first = tile.first(), D = rule.sizes.D, rows = tile.rows();
  const T *const o = x.all_o ? x.all_o : x.o, *const l = x.all_l ? x.all_l : x.l;
  for (int64_t i = 0; i < rows; ++i) {
    T* const to = out.at(tile.sample(), first + i, tile.head());
    const T sum = rule.sigmoid ? T{1} : l[i];
    if (i >= tile.count() || sum == 0) {
      std::fill_n(to, D, T{0});
      lse[first + i] = -infinity<T>;
      continue;
    }
    const T factor = static_cast<T>(rule.dropout.scale()) / sum;
    for (int64_t d = 0; d < D; ++d) to[d] = factor * o[i * D + d];
    lse[first + i] = x.m[i] + Base<T>::log(sum);
  }
}

template <class T>
void forward(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
             Tensor& lse) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q), hk(k), hv(v);
  const Heads<T> ho(out);
  const int64_t blocks = z.query_blocks(), D = z.D;
  // Enough tasks for many threads take precedence over sharing.
  const int64_t together =
      std::clamp<int64_t>(z.B * z.H * blocks / 64, 1, z.blocks_of(forward_blocks));
  const int64_t tasks_of_head = (blocks + together - 1) / together;
  const int64_t grain = std::max<int64_t>(
      1, task_flops / (4 * std::min(z.N, together * query_block) * rule.keys_of_query * D));
  parallel_for(z.B * z.H * tasks_of_head, grain, [&](int64_t begin, int64_t end) {
    const kernels::SubnormalsAsZeros zeros;  // decays produce many of them
    Workspace<Task<T>> task(rule, together, false);
    for (int64_t number = begin; number < end; ++number) {
      const int64_t h = number / tasks_of_head % z.H, b = number / tasks_of_head / z.H;
      const int64_t first_block = number % tasks_of_head * together,
                    count = std::min(together, blocks - first_block);
      for (int64_t r = 0; r < count; ++r) {
        ScoreTile<T>& tile = task->tiles[r];
        tile.locate(b, h, first_block + r);
        tile.load(hq);
        task->attended[r].start(tile.count(), tile.lanes(), D);
      }
      attend_to_all(rule, *task, count, hk, hv, b, h * z.Hkv / z.H);
      for (int64_t r = 0; r < count; ++r)
        write_result(rule, task->tiles[r], task->attended[r], ho,
                     lse.data<T>() + (b * z.H + h) * z.N);
    }
  });
}

// If there are few heads to process in parallel, the keys and queries of each head are divided into
// groups of blocks. A task is a pair of a group of keys and a group of queries. Tasks with no group
// in common run in parallel, as a wave; from wave to wave each group of keys advances to the next
// group of queries. So no two tasks add to the same gradient at the same time, additions have a
// fixed order, and no task needs its own copy of a gradient. If there are too few keys for enough
// groups, as in Linformer, their gradients are small: queries are then also divided into parts,
// each with a copy of dk and dv, and the copies are added at the end. With a pattern, keys are
// divided less the fewer a query attends to, because each group reads its queries again.
struct Groups {
  int64_t keys, queries;  // keys <= queries, the number of waves
  int64_t copies;         // of dk and dv
  int64_t indices;        // blocks of queries, over all heads that share keys
  int64_t together;       // number of these that share a copied block of keys
  int64_t units;          // groups of `together` blocks

  Groups(const Sizes& z, int64_t keys_of_query, size_t bytes_of_number)
      : indices(z.query_blocks() * (z.H / z.Hkv)) {
    constexpr int64_t tasks = 16, tokens_of_group = 256, copy_bytes = int64_t{1} << 21;
    const auto parts = [](int64_t all, int64_t size) { return (all + size - 1) / size; };
    const int64_t heads = z.B * z.Hkv;
    keys = std::clamp<int64_t>(parts(tasks, heads), 1,
                               std::max<int64_t>(1, keys_of_query / tokens_of_group));
    const int64_t bytes = 2 * heads * z.M * z.D * static_cast<int64_t>(bytes_of_number);
    copies = std::clamp<int64_t>(parts(tasks, heads * keys), 1,
                                 std::max<int64_t>(1, copy_bytes / bytes));
    copies = std::min(copies, std::max<int64_t>(1, indices / keys));
    // Adjacent blocks of a narrow window attend to almost the same keys.
    const int64_t most = z.blocks_of(z.span < query_block ? forward_blocks : backward_blocks);
    together = std::clamp<int64_t>(indices / (keys * copies), 1, most);
    units = parts(indices, together);
    queries = std::min(keys, parts(units, copies));
    keys = std::min(keys, queries);
  }
};

// Adds to the required gradients of a block of keys and of the queries: dk, dv (., D), dc, with
// stride H between keys, and x.dq. ds is scratch memory for a tile.
template <class T>
void add_gradients(const Rule& rule, ScoreTile<T>& tile, Range keys, const T* k, const T* v,
                   const Attending<T>& x, T* ds, T* dk, T* dv, T* dc, bool dq) {
  const int64_t n = keys.size(), count = tile.count(), lanes = tile.lanes(), D = rule.sizes.D;
  tile.compute(keys, k);
  T* const s = tile.scores();
  if (dk || dq || dc) gemm_tile<T>(n, lanes, D, {v, D, 1}, x.dot, lanes, ds, lanes, false);
  simd([&, s, ds, lse = x.l, delta = x.delta, scale = static_cast<T>(rule.dropout.scale())] {
    const auto weight = [=](auto dropout, T p, bool keep) {
      return !dropout ? p : keep ? p * scale : T{0};
    };
    if (rule.sigmoid)
      tile.for_pairs(n, [=](auto drops, int64_t, int64_t a, int64_t b, bool keep_a, bool keep_b) {
        const auto one = [=](int64_t at, bool keep) {
          const auto [p, slope] = sigmoid_of(s[at]);
          ds[at] = keep ? slope * ds[at] : T{0};
          s[at] = weight(drops, p, keep);
        };
        one(a, keep_a);
        one(b, keep_b);
      });
    else
      tile.for_pairs(n, [=](auto drops, int64_t i, int64_t a, int64_t b, bool keep_a, bool keep_b) {
        const T pa = Base<T>::power(s[a] - lse[i]), pb = Base<T>::power(s[b] - lse[i]);
        ds[a] = pa * ((keep_a ? ds[a] : T{0}) - delta[i]);
        ds[b] = pb * ((keep_b ? ds[b] : T{0}) - delta[i]);
        s[a] = weight(drops, pa, keep_a);
        s[b] = weight(drops, pb, keep_b);
      });
    if (!dc) return;
    const T unscaled = static_cast<T>(1 / rule.scale);  // ds has the factor τ
    for (int64_t j = 0; j < n; ++j)
      dc[j * rule.sizes.H] += unscaled * kernels::row_sum(ds + j * lanes, lanes);
  });
  if (dv) gemm_tile<T>(n, D, count, {s, lanes, 1}, x.dout, D, dv, D, true);
  if (dk) gemm_tile<T>(n, D, count, {ds, lanes, 1}, x.q, D, dk, D, true);
  if (dq) gemm_tile<T>(count, D, n, {ds, 1, lanes}, k, D, x.dq, D, true);
}

template <class T>
void add_rows(const T* from, int64_t b, int64_t h, int64_t first, int64_t n, int64_t D,
              const Heads<T>& to) {
  simd([=] {
    for (int64_t i = 0; i < n; ++i) {
      T* const row = to.at(b, first + i, h);
      for (int64_t d = 0; d < D; ++d) row[d] += from[i * D + d];
    }
  });
}

// The gradients that the backward pass adds to; undefined: not required.
struct Gradients {
  Tensor q, k, v, c;  // c (B, M, H)
};
constexpr Tensor Gradients::*of_keys[] = {&Gradients::k, &Gradients::v, &Gradients::c};

// The tensors that the backward pass reads and writes.
template <class T>
struct Operands {
  Heads<const T> q, k, v, out, dout;
  const T* lse;   // (B, H, N)
  const T* dlse;  // (B, H, N): the gradient of L in units of e; null: 0
  Gradients to;
};

// Reads the queries of `tile`, their L, and their dO; sets dq to 0.
template <class T>
void start_backward(const Rule& rule, const Operands<T>& in, const ScoreTile<T>& tile,
                    const Attending<T>& x) {
  const int64_t b = tile.sample(), h = tile.head(), first = tile.first(), count = tile.count(),
                lanes = tile.lanes(), D = rule.sizes.D;
  std::fill_n(x.dq, count * D, T{0});
  if (count == 0) return;
  copy_rows(in.q, b, h, first, count, D, x.q);
  copy_rows(in.dout, b, h, first, count, D, x.dout);
  pack_transposed(x.dout, D, count, D, static_cast<T>(rule.scale * rule.dropout.scale()), x.dot);
  const int64_t row = (b * rule.sizes.H + h) * rule.sizes.N + first;
  const T *const lse = in.lse + row, *const dlse = in.dlse ? in.dlse + row : nullptr;
  simd([&] {
    for (int64_t i = 0; i < lanes; ++i) {
      x.l[i] = i < count && lse[i] != -infinity<T> ? lse[i] : infinity<T>;
      x.delta[i] = i < count ? static_cast<T>(rule.scale) *
                                   kernels::row_dot(in.out.at(b, first + i, h), x.dout + i * D, D)
                             : T{0};
      if (dlse && i < count) x.delta[i] -= static_cast<T>(rule.scale) * dlse[i];
    }
  });
}

// Adds the gradients of the keys of head hkv that belong to the task, and adds to dq of the first
// `count` blocks of queries.
template <class T>
void add_block_of_keys(const Rule& rule, Operands<T>& in, Task<T>& task, int64_t count, int64_t b,
                       int64_t hkv, Range keys) {
  const int64_t n = keys.size(), D = rule.sizes.D;
  const bool dq = in.to.q.defined(), dk = in.to.k.defined(), dv = in.to.v.defined();
  std::fill_n(task.dkeys, n * D, T{0});
  std::fill_n(task.dvalues, n * D, T{0});
  T* const all_dc = data_or_null<T>(in.to.c);
  for (int64_t r = 0; r < count; ++r)
    task.tiles[r].for_parts(keys, [&](Range part) {
      const int64_t at = (part.begin - keys.begin) * D;
      T* const dc =
          all_dc ? all_dc + (b * rule.sizes.M + part.begin) * rule.sizes.H + task.tiles[r].head()
                 : nullptr;
      add_gradients(rule, task.tiles[r], part, task.keys + at, task.values + at, task.attending[r],
                    task.dscores, dk ? task.dkeys + at : nullptr, dv ? task.dvalues + at : nullptr,
                    dc, dq);
    });
  if (dk) add_rows<T>(task.dkeys, b, hkv, keys.begin, n, D, Heads<T>(in.to.k));
  if (dv) add_rows<T>(task.dvalues, b, hkv, keys.begin, n, D, Heads<T>(in.to.v));
}

// The gradients of a group of keys and a group of queries of the heads that share head hkv, where
// the queries belong to one copy of dk and dv.
template <class T>
void add_groups(const Rule& rule, const Groups& groups, Operands<T>& in, Task<T>& task, int64_t b,
                int64_t hkv, const KeyGroup& key_group, int64_t query_group, int64_t copy) {
  const Sizes& z = rule.sizes;
  const int64_t blocks = z.query_blocks(), D = z.D;
  for (int64_t unit = query_group * groups.copies + copy; unit < groups.units;
       unit += groups.queries * groups.copies) {
    const int64_t index = unit * groups.together;
    const int64_t count = std::min(groups.together, groups.indices - index);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t h = hkv * (z.H / z.Hkv) + (index + r) / blocks;
      task.tiles[r].locate(b, h, (index + r) % blocks);
      list_key_tiles<T>(rule, {&task.tiles[r], 1}, 0, key_group, task.key_tiles);
      if (task.key_tiles.empty()) task.tiles[r].clear();
      task.tiles[r].load(in.q);
      start_backward(rule, in, task.tiles[r], task.attending[r]);
    }
    const auto flush_dq = [&] {
      if (!in.to.q.defined()) return;
      for (int64_t r = 0; r < count; ++r) {
        const ScoreTile<T>& tile = task.tiles[r];
        T* const dq = task.attending[r].dq;
        add_rows<T>(dq, b, tile.head(), tile.first(), tile.count(), D, Heads<T>(in.to.q));
        std::fill_n(dq, tile.count() * D, T{0});
      }
    };
    list_key_tiles<T>(rule, task.first_tiles(count), 0, key_group, task.key_tiles);
    const auto add = [&](Range keys, Range next) {
      for (Tensor* const to : {&in.to.k, &in.to.v})
        if (to->defined()) prefetch_rows(Heads<T>(*to), b, hkv, next, D);
      add_block_of_keys(rule, in, task, count, b, hkv, keys);
    };
    task.for_key_tiles(rule, in.k, in.v, b, hkv, add, flush_dq);
  }
}

template <class T>
void backward(const Rule& rule, Operands<T> in) {
  const Sizes& z = rule.sizes;
  const Groups groups(z, rule.keys_of_query, sizeof(T));
  std::vector<Operands<T>> copies(groups.copies, in);
  for (int64_t c = 1; c < groups.copies; ++c)
    for (const auto of : of_keys)
      if (const Tensor& first = in.to.*of; first.defined())
        copies[c].to.*of = Tensor::zeros(first.shape(), first.dtype());
  const int64_t parts = groups.queries * groups.copies;
  // If queries attend to few keys, contiguous groups make them attend to fewer groups, and fewer
  // tasks read them. Otherwise groups are interleaved, which balances causal attention.
  const bool sparse = rule.window || rule.pattern;
  const int64_t run = sparse ? (rule.key_tiles() + groups.keys - 1) / groups.keys : 1;
  const int64_t flops = 10 * std::max<int64_t>(1, groups.indices / parts) * query_block *
                        std::max<int64_t>(1, rule.keys_of_query / groups.keys) * z.D;
  for (int64_t wave = 0; wave < groups.queries; ++wave)
    parallel_for(z.B * z.Hkv * groups.keys * groups.copies,
                 std::max<int64_t>(1, task_flops / flops), [&](int64_t begin, int64_t end) {
                   const kernels::SubnormalsAsZeros zeros;
                   Workspace<Task<T>> task(rule, groups.together, true);
                   for (int64_t number = begin; number < end; ++number) {
                     const int64_t copy = number % groups.copies, rest = number / groups.copies;
                     const int64_t key_group = rest % groups.keys, head = rest / groups.keys;
                     add_groups(rule, groups, copies[copy], *task, head / z.Hkv, head % z.Hkv,
                                {key_group, groups.keys, run}, (key_group + wave) % groups.queries,
                                copy);
                   }
                 });
  for (int64_t c = 1; c < groups.copies; ++c)
    for (const auto of : of_keys)
      if ((in.to.*of).defined()) accumulate_into(in.to.*of, 1, copies[c].to.*of);
}

// The same for rows = {q, k, v, out, dout}; dlse may be undefined.
void backward(const Rule& rule, const std::array<Tensor, 5>& rows, const Tensor& lse,
              const Tensor& dlse, const Gradients& to) {
  dispatch_float(lse.dtype(), [&]<class T>() {
    const auto heads = [&](int i) { return Heads<const T>(rows[i]); };
    backward<T>(rule, {heads(0), heads(1), heads(2), heads(3), heads(4), lse.data<T>(),
                       data_or_null<T>(dlse), to});
  });
}

// The elements of x (B, N, H) as exponents of Base, (B, H, N) in double precision.
Variable exponents(const Variable& x) {
  const Tensor heads = x.value().transpose(1, 2).to(DType::f64).contiguous();
  return affine(Variable(heads), log_e_of(x.dtype()));
}

void check_pattern(const BlockPattern& p, const Sizes& z, bool drops) {
  check<ConfigError>(p.block >= 1 && p.key_block >= 0,
                     "softmax_attention: expected a pattern of blocks of at least 1 token, got ",
                     p.block, " queries and ", p.key_block, " keys");
  check<ConfigError>(!drops || p.keys_of_block() % 2 == 0,
                     "softmax_attention: with dropout, expected a pattern of blocks of an even "
                     "number of keys, got ",
                     p.keys_of_block());
  check<ShapeError>((p.samples == 1 || p.samples == z.B) && (p.heads == 1 || p.heads == z.H),
                    "softmax_attention: expected a pattern for 1 or ", z.B, " samples and 1 or ",
                    z.H, " heads, got ", p.samples, " and ", p.heads);
  const int64_t rows = p.samples * p.heads * ((z.N + p.block - 1) / p.block),
                blocks = (z.M + p.keys_of_block() - 1) / p.keys_of_block(),
                entries = static_cast<int64_t>(p.keys.size());
  check<ShapeError>(static_cast<int64_t>(p.begin.size()) == rows + 1 && p.begin.front() == 0 &&
                        p.begin.back() == entries && std::is_sorted(p.begin.begin(), p.begin.end()),
                    "softmax_attention: expected a pattern of ", rows,
                    " rows of blocks of keys, from 0 to ", entries, ", got ", p.begin.size() - 1,
                    " rows from ", p.begin.front(), " to ", p.begin.back());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = p.begin[r]; at < p.begin[r + 1]; ++at)
      check<ShapeError>(
          p.keys[at] < blocks && p.keys[at] > (at == p.begin[r] ? -1 : p.keys[at - 1]),
          "softmax_attention: expected increasing blocks of keys below ", blocks, " in row ", r,
          " of the pattern, got ", p.keys[at]);
}

// The approximate number of keys that a query attends to.
int64_t keys_of_query(const BlockPattern* p, const Sizes& z) {
  if (!p) return z.M;
  const int64_t rows = static_cast<int64_t>(p->begin.size()) - 1;
  return std::clamp<int64_t>(static_cast<int64_t>(p->keys.size()) * p->keys_of_block() / rows, 1,
                             z.M);
}

Rule make_rule(const Tensor& q, const Tensor& k, const Tensor& v,
               const SoftmaxAttentionOptions& options) {
  const Shape &qs = q.shape(), &ks = k.shape();
  check<ShapeError>(qs.rank() == 4 && ks.rank() == 4 && ks == v.shape() && qs[0] == ks[0] &&
                        qs[3] == ks[3] && qs.numel() > 0 && ks.numel() > 0 && qs[2] % ks[2] == 0,
                    "softmax_attention: expected q (B, N, H, D), k and v (B, M, Hkv, D), H a "
                    "multiple of Hkv and nothing empty, got q ",
                    qs, ", k ", ks, ", v ", v.shape());
  check_one_float_dtype("softmax_attention", q.dtype(), k.dtype(), v.dtype());
  const BlockPattern* const pattern = options.pattern.get();
  // Small blocks of queries see few keys outside their windows.
  constexpr int64_t narrow = 32;
  const bool is_narrow = options.window > 0 && options.window < 8 * narrow;
  const int64_t span = pattern ? pattern->block : is_narrow ? narrow : qs[1];
  const Sizes z{qs[0], qs[1], ks[1], qs[2], ks[2], qs[3], span};
  if (pattern) check_pattern(*pattern, z, options.dropout.p > 0);
  std::vector<int32_t> key_lengths = lengths_or("softmax_attention: key_lengths",
                                                options.key_lengths, z.B, z.M),
                       query_lengths = lengths_or("softmax_attention: query_lengths",
                                                  options.query_lengths, z.B, z.N);
  const bool by_position = options.causal || options.window != 0 || !options.slopes.empty() ||
                           options.log_decay.defined();
  const int64_t first_query = options.first_query.value_or(0),
                queries = *std::max_element(query_lengths.begin(), query_lengths.end());
  check<ShapeError>(
      !by_position || options.first_key || queries == 0 ||
          (options.first_query ? first_query >= 0 && first_query + queries <= z.M : z.N == z.M),
      "softmax_attention: causal, window, slopes and log_decay expect as many "
      "queries as keys, or first_query, got ",
      z.N, " queries from ", first_query, " on and ", z.M, " keys");
  const Variable &g = options.log_decay, &key_bias = options.key_bias;
  const int64_t first_key = options.first_key.value_or(0);
  check<ConfigError>(first_query >= 0 && first_key >= 0 && first_key % 2 == 0,
                     "softmax_attention: expected first_query >= 0 and an even first_key, got ",
                     first_query, " and ", first_key);
  check<ConfigError>(!options.first_key || !(g.defined() || pattern),
                     "softmax_attention: a block of keys expects neither log_decay nor pattern");
  const auto check_bias = [&](const char* name, const Variable& x, const Shape& shape) {
    if (x.defined()) check_operand("softmax_attention", name, x.value(), q.dtype(), shape);
  };
  check_bias("log_decay", g, {z.B, z.M, z.H});
  check_bias("key_bias", key_bias, {z.B, z.M, z.H});
  check_bias("sink", options.sink, {z.H});
  check<ConfigError>(!options.sigmoid || !(g.defined() || options.sink.defined()),
                     "softmax_attention: sigmoid weights expect neither log_decay nor sink");
  check<ConfigError>(!g.defined() || options.causal,
                     "softmax_attention: a log_decay requires causal attention");
  check<ShapeError>(options.slopes.empty() || static_cast<int64_t>(options.slopes.size()) == z.H,
                    "softmax_attention: expected ", z.H, " slopes, one per head, or none, got ",
                    options.slopes.size());
  const double p = options.dropout.p;
  check<ConfigError>(0 <= p && p < 1, "softmax_attention: expected dropout in [0, 1), got ", p);
  check<ConfigError>(options.window >= 0, "softmax_attention: expected window >= 0, got ",
                     options.window);
  const NoGrad no_grad;
  Variable G, c;  // c_j = b_j - G_j (B, H, M); if only one is given, from that one
  if (g.defined()) G = cumsum(exponents(g), 2), c = -G;
  if (key_bias.defined()) c = g.defined() ? exponents(key_bias) - G : exponents(key_bias);
  return {z,
          options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(z.D)),
          options.causal,
          options.window,
          std::move(key_lengths),
          std::move(query_lengths),
          options.slopes,
          first_query,
          first_key,
          ProbabilityDropout(options.dropout, z.H, first_query),
          G.value(),
          c.value(),
          options.pattern,
          keys_of_query(pattern, z),
          options.sigmoid};
}

// log_sums only if `with_sums`.
SoftmaxAttentionResult compute(const Variable& q_, const Variable& k_, const Variable& v_,
                               const SoftmaxAttentionOptions& options, bool with_sums) {
  const Rule rule = make_rule(q_.value(), k_.value(), v_.value(), options);
  check<ConfigError>(!with_sums || !rule.sigmoid,
                     "softmax_attention: sigmoid weights have no normalisers, and so no sums");
  const Sizes& z = rule.sizes;
  const Variable &g = options.log_decay, &key_bias = options.key_bias, &sink = options.sink;
  const double log_e = log_e_of(q_.dtype());
  const Variable q = with_contiguous_rows(q_), k = with_contiguous_rows(k_),
                 v = with_contiguous_rows(v_);
  Tensor out = Tensor::empty(q.shape(), q.dtype()), lse = Tensor::empty({z.B, z.H, z.N}, q.dtype());
  dispatch_float(q.dtype(),
                 [&]<class T>() { forward<T>(rule, q.value(), k.value(), v.value(), out, lse); });
  if (sink.defined()) add_sink(sink.value(), log_e, out, lse);
  // Saves L instead of the N x M probabilities: recomputing them is cheaper than reading them.
  Variables operands{q, k, v};
  for (const Variable* const x : {&g, &key_bias, &sink})
    if (x->defined()) operands.push_back(*x);
  ShortVector<Tensor> results{out};
  if (with_sums) results.push_back(affine(Variable(lse), 1 / log_e).value());
  const Variables recorded = record_all(
      "softmax_attention", results, operands,
      [rule, q = q.value(), k = k.value(), v = v.value(), out, lse, log_e, sink = sink.value()](
          std::span<const Tensor> grads_out, std::span<GradSlot> grad_in) {
        const Tensor dout = with_contiguous_rows(grads_out[0]),
                     dlse = grads_out.size() > 1 ? grads_out[1].contiguous() : Tensor();
        Gradients to{
            begun_gradient(grad_in[0]), begun_gradient(grad_in[1]), begun_gradient(grad_in[2]), {}};
        // Of log_decay, then of key_bias.
        const auto biases = grad_in.subspan(3, grad_in.size() - (sink.defined() ? 4 : 3));
        if (std::any_of(biases.begin(), biases.end(),
                        [](const GradSlot& slot) { return bool(slot); }))
          to.c = Tensor::zeros({rule.sizes.B, rule.sizes.M, rule.sizes.H}, q.dtype());
        backward(rule, {q, k, v, out, dout}, lse, dlse, to);
        if (sink.defined() && grad_in.back())
          grad_in.back().take(sink_gradient(sink, log_e, out, lse, dout, dlse));
        const bool decays = rule.decays.defined();
        if (decays && biases.front())  // dg_t = -Σ_(u>=t) dc_u
          biases.front().take(affine(cumsum(Variable(to.c), 1, true), -1).value());
        if (biases.size() > (decays ? 1 : 0) && biases.back()) biases.back().take(to.c);
      });
  return {recorded[0], with_sums ? recorded[1] : Variable()};
}

}  // namespace

Variable softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                           const SoftmaxAttentionOptions& options) {
  return compute(q, k, v, options, false).out;
}

SoftmaxAttentionResult softmax_attention_with_sums(const Variable& q, const Variable& k,
                                                   const Variable& v,
                                                   const SoftmaxAttentionOptions& options) {
  return compute(q, k, v, options, true);
}

void add_softmax_attention_gradients(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& out, const Tensor& log_sums, const Tensor& dout,
                                     const SoftmaxAttentionOptions& options, Tensor& dq, Tensor& dk,
                                     Tensor& dv) {
  check<ConfigError>(!options.log_decay.defined() && !options.key_bias.defined() &&
                         !options.sink.defined() && !options.sigmoid,
                     "softmax_attention: expected neither log_decay, key_bias, sink nor sigmoid "
                     "weights for the gradients of a block of keys");
  const Rule rule = make_rule(q, k, v, options);
  const Sizes& z = rule.sizes;
  check<ShapeError>(out.shape() == q.shape() && dout.shape() == q.shape() &&
                        log_sums.shape() == Shape{z.B, z.H, z.N} && dq.shape() == q.shape() &&
                        dk.shape() == k.shape() && dv.shape() == k.shape() && dq.is_contiguous() &&
                        dk.is_contiguous() && dv.is_contiguous(),
                    "softmax_attention: expected results and contiguous gradients of the shapes of "
                    "q ",
                    q.shape(), " and k ", k.shape());
  const Tensor lse = affine(Variable(log_sums), log_e_of(q.dtype())).value().contiguous();
  backward(rule,
           {with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v),
            with_contiguous_rows(out), with_contiguous_rows(dout)},
           lse, {}, {dq, dk, dv, {}});
}

}  // namespace longhand::attention
