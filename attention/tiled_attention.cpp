// Rabe & Staats 2021 (arXiv 2112.05682); Dao et al. 2022 (arXiv 2205.14135), algorithms 1 and 4;
// Dao 2023 (arXiv 2307.08691). With scores s_ij = τ q_i·k_j + bias_ij, L_i = log Σ_j e^(s_ij) and
// p_ij = e^(s_ij - L_i):
//
//   o_i = Σ_j p_ij v_j                      tile by tile, with the maximum m so far:
//   m' = max(m, max_j s_ij),  l ← e^(m-m') l + Σ_j e^(s_ij-m'),  o ← e^(m-m') o + Σ_j e^(s_ij-m')
//   v_j and in the end o / l, L = m + log l
//
//   δ_i = do_i·o_i,  dp_ij = do_i·v_j,  ds_ij = p_ij (dp_ij - δ_i)
//   dv_j = Σ_i p_ij do_i,  dk_j = τ Σ_i ds_ij q_i,  dq_i = τ Σ_j ds_ij k_j
//
// A tile has its keys down and its queries across: S = K Qᵀ. So the lanes of a vector are queries,
// maxima and sums over keys need nothing across lanes, keys beyond a length are rows that are left
// out, and of all products' factors only Qᵀ and dOᵀ must be copied, once for a block of queries.
//
// f32 works with logarithms and powers of base 2: τ log2 e is multiplied into Qᵀ.
#include "longhand/attention/tiled_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/attention/probability_dropout.h"
#include "longhand/attention/tiles.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;
using namespace tiles;

// Multiples of 16 lanes and 6 (12) rows. S takes half of the first cache, 18 KiB in f32.
constexpr int64_t query_block = 48, key_block = 96;  // the most that a block has
constexpr int64_t task_flops = int64_t{1} << 23;     // some 80 µs

struct Sizes {
  int64_t B, N, M, H, Hkv, D;
  int64_t query_blocks() const { return (N + query_block - 1) / query_block; }
  // Of as even blocks as the lanes allow: 64 queries are two of 32.
  int64_t block_queries() const {
    const int64_t even = (N + query_blocks() - 1) / query_blocks();
    return whole_lanes(even);
  }
  int64_t key_blocks() const { return (M + key_block - 1) / key_block; }
};

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// The options as kernels want them.
struct Rule {
  Sizes sizes;
  double scale;
  bool causal;
  int64_t window;
  std::vector<int32_t> key_lengths, query_lengths;
  std::vector<double> slopes;
  ProbabilityDropout dropout;

  // The keys that query i attends to. Neither end falls as i grows.
  Range keys_of(int64_t b, int64_t i) const {
    Range r{window ? std::max<int64_t>(0, i - window + 1) : 0, key_lengths[b]};
    if (causal)
      r.end = std::min(r.end, i + 1);
    else if (window)
      r.end = std::min(r.end, i + window);
    return {std::min(r.begin, r.end), r.end};
  }
};

// The scores of one block of queries of one head with some keys at a time.
template <class T>
class ScoreTile {
 public:
  ScoreTile(const Rule& rule, Scratch& scratch)
      : rule_(rule),
        q_(scratch.take<T>(rule.sizes.D * query_block)),
        s_(scratch.take<T>(key_block * query_block)),
        position_(scratch.take<T>(query_block)),
        from_(scratch.take<int32_t>(query_block)),
        to_(scratch.take<int32_t>(query_block)),
        words_{scratch.take<uint32_t>(query_block), scratch.take<uint32_t>(query_block),
               scratch.take<uint32_t>(key_block), scratch.take<uint32_t>(key_block)} {}
  static int64_t elements(const Sizes& z) {
    return (z.D + key_block + 8) * query_block + 2 * key_block;
  }

  void start(const Heads<const T>& q, int64_t b, int64_t h, int64_t block) {
    b_ = b, h_ = h, first_ = block * rule_.sizes.block_queries();
    count_ = std::clamp<int64_t>(rule_.query_lengths[b] - first_, 0,
                                 std::min(rule_.sizes.block_queries(), rule_.sizes.N - first_));
    lanes_ = whole_lanes(count_);
    some_ = all_ = {0, 0};
    if (count_ == 0) return;
    const Range low = rule_.keys_of(b, first_), high = rule_.keys_of(b, first_ + count_ - 1);
    some_ = {low.begin, high.end};
    all_ = {high.begin, low.end};
    slope_ = rule_.slopes.empty() ? T{0} : static_cast<T>(rule_.slopes[h] * Base<T>::log_e);
    pack_transposed(q.at(b, first_, h), q.token, count_, lanes_, rule_.sizes.D,
                    static_cast<T>(rule_.scale * Base<T>::log_e), q_);
    for (int64_t i = 0; i < lanes_; ++i) {
      const Range keys = rule_.keys_of(b, first_ + std::min(i, count_ - 1));
      position_[i] = static_cast<T>(first_ + i);
      from_[i] = static_cast<int32_t>(keys.begin), to_[i] = static_cast<int32_t>(keys.end);
    }
    if (rule_.dropout.on())
      rule_.dropout.query_words(b * rule_.sizes.H + h, first_, lanes_, words_[0], words_[1]);
  }

  int64_t first() const { return first_; }
  int64_t count() const { return count_; }  // of queries
  int64_t lanes() const { return lanes_; }  // count and some more, whose scores mean nothing
  // The keys that any of the queries attends to. Begins at an even one.
  Range keys() const { return {some_.begin & ~int64_t{1}, some_.end}; }
  T* scores() { return s_; }  // (keys, lanes)

  // Scores with at most key_block keys, an even first one; -inf where a query does not attend. If
  // their number is odd, there is one more row of -inf: the loops over them go by pairs.
  void compute(Range keys, const T* k, int64_t k_token) {
    const int64_t lanes = lanes_, count = keys.size();
    gemm_tile<T>(count, lanes, rule_.sizes.D, {k, k_token, 1}, q_, lanes, s_, lanes, false);
    if (count % 2) std::fill_n(s_ + count * lanes, lanes, -infinity<T>);
    const bool edge = keys.begin < all_.begin || keys.end > all_.end;
    if (edge || slope_ != 0)
      simd([&, s = s_, position = position_, from = from_, to = to_, slope = slope_] {
        for (int64_t n = 0; n < count; ++n) {
          T* const row = s + n * lanes;
          const T at = static_cast<T>(keys.begin + n);
          if (slope != 0)
            for (int64_t i = 0; i < lanes; ++i) row[i] -= slope * std::abs(position[i] - at);
          const int32_t j = static_cast<int32_t>(keys.begin + n);
          if (edge)
            for (int64_t i = 0; i < lanes; ++i)
              row[i] = j >= from[i] && j < to[i] ? row[i] : -infinity<T>;
        }
      });
    if (rule_.dropout.on())
      rule_.dropout.key_words(b_ * rule_.sizes.H + h_, keys.begin / 2, (count + 1) / 2, words_[2],
                              words_[3]);
  }

  // Calls visit(lane, row of the even key, element there, element in the row below, keep, keep
  // below) for all elements. For simd().
  template <bool dropout, class F>
  void for_pairs(int64_t keys, F visit) const {
    const uint32_t *const a = words_[0], *const b = words_[1];
    const uint32_t threshold = rule_.dropout.threshold();
    const int64_t lanes = lanes_;
    for (int64_t n = 0; n < keys; n += 2) {
      const uint32_t c = dropout ? words_[2][n / 2] : 0, d = dropout ? words_[3][n / 2] : 0;
      for (int64_t first = 0; first < lanes; first += lane_multiple) {
#pragma GCC ivdep  // lanes do not meet
        for (int64_t lane = 0; lane < lane_multiple; ++lane) {
          const int64_t i = first + lane, row = n * lanes + i;
          const uint32_t both = dropout ? dropout_hash(a[i], b[i], c, d) : 0;
          visit(i, row, row + lanes, !dropout || (both & 0xffff) >= threshold,
                !dropout || both >> 16 >= threshold);
        }
      }
    }
  }

 private:
  const Rule& rule_;
  T *const q_, *const s_, *const position_;  // q_ (D, lanes)
  int32_t *const from_, *const to_;
  uint32_t* const words_[4];
  int64_t b_ = 0, h_ = 0, first_ = 0, count_ = 0, lanes_ = 0;
  Range some_{0, 0}, all_{0, 0};  // keys that any, and all, of the queries attend to
  T slope_ = 0;
};

template <bool dropout, class T>
void accumulate_powers(const ScoreTile<T>& tile, int64_t keys, T* s, const T* shift, T* l) {
  tile.template for_pairs<dropout>(
      keys, [=](int64_t i, int64_t x, int64_t y, bool keep_x, bool keep_y) {
        const T px = Base<T>::power(s[x] - shift[i]), py = Base<T>::power(s[y] - shift[i]);
        l[i] += px + py;
        s[x] = keep_x ? px : T{0};
        s[y] = keep_y ? py : T{0};
      });
}

template <class T>
void forward(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
             Tensor& lse) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q), hk(k), hv(v);
  const Heads<T> ho(out);
  const int64_t blocks = z.query_blocks(), D = z.D;
  const int64_t elements = ScoreTile<T>::elements(z) + (D + 5) * query_block;
  const int64_t grain =
      std::max<int64_t>(1, task_flops / (4 * std::min(z.N, query_block) * z.M * D));
  parallel_for(z.B * z.H * blocks, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch(static_cast<size_t>(elements) * sizeof(T) + 64 * 16);
    ScoreTile<T> tile(rule, scratch);
    T* const o = scratch.take<T>(D * query_block);
    T *const m = scratch.take<T>(query_block), *const l = scratch.take<T>(query_block);
    T *const top = scratch.take<T>(query_block), *const shift = scratch.take<T>(query_block);
    T* const shrink = scratch.take<T>(query_block);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t h = task / blocks % z.H, b = task / blocks / z.H, hkv = h * z.Hkv / z.H;
      tile.start(hq, b, h, task % blocks);
      const int64_t count = tile.count(), lanes = tile.lanes();
      std::fill_n(m, lanes, -infinity<T>);
      std::fill_n(l, lanes, T{0});
      std::fill_n(o, count * D, T{0});
      for (Range keys = tile.keys(); keys.begin < keys.end; keys.begin += key_block) {
        const Range part{keys.begin, std::min(keys.begin + key_block, keys.end)};
        tile.compute(part, hk.at(b, part.begin, hkv), hk.token);
        T* const s = tile.scores();
        simd([&, lanes, s] {
          std::copy_n(m, lanes, top);
          tile.template for_pairs<false>(part.size(),
                                         [=](int64_t i, int64_t x, int64_t y, bool, bool) {
                                           const T larger = s[x] < s[y] ? s[y] : s[x];
                                           top[i] = top[i] < larger ? larger : top[i];
                                         });
          for (int64_t i = 0; i < lanes; ++i) {
            shift[i] = top[i] == -infinity<T> ? T{0} : top[i];
            shrink[i] = m[i] == top[i] ? T{1} : Base<T>::power(m[i] - shift[i]);
            l[i] *= shrink[i];
            m[i] = top[i];
          }
          if (rule.dropout.on())
            accumulate_powers<true>(tile, part.size(), s, shift, l);
          else
            accumulate_powers<false>(tile, part.size(), s, shift, l);
          for (int64_t i = 0; i < count; ++i)
            if (shrink[i] != 1)
              for (int64_t d = 0; d < D; ++d) o[i * D + d] *= shrink[i];
        });
        gemm_tile<T>(count, D, part.size(), {s, 1, lanes}, hv.at(b, part.begin, hkv), hv.token, o,
                     D, true);
      }
      const int64_t rows = std::min(z.block_queries(), z.N - tile.first());
      T* const to_lse = lse.data<T>() + (b * z.H + h) * z.N + tile.first();
      for (int64_t i = 0; i < rows; ++i) {
        T* const to = ho.at(b, tile.first() + i, h);
        if (i >= count || l[i] == 0) {
          std::fill_n(to, D, T{0});
          to_lse[i] = -infinity<T>;
          continue;
        }
        const T factor = static_cast<T>(rule.dropout.scale()) / l[i];
        for (int64_t d = 0; d < D; ++d) to[d] = factor * o[i * D + d];
        to_lse[i] = m[i] + Base<T>::log(l[i]);
      }
    }
  });
}

// The keys are dealt out to groups, block by block: each is a task that computes dk and dv of its
// keys and what they give to dq. The sum of the latter is over groups in order. More groups than
// one only if there are few heads to work on at once.
int64_t key_groups(const Sizes& z) {
  constexpr int64_t tasks = 16, keys_of_group = 512;
  const int64_t heads = z.B * z.Hkv;
  return std::clamp<int64_t>((tasks + heads - 1) / heads, 1,
                             std::max<int64_t>(1, z.M / keys_of_group));
}

template <bool dropout, class T>
void score_gradients(const ScoreTile<T>& tile, int64_t keys, T* s, T* ds, const T* lse,
                     const T* delta, T scale) {
  tile.template for_pairs<dropout>(
      keys, [=](int64_t i, int64_t x, int64_t y, bool keep_x, bool keep_y) {
        const T px = Base<T>::power(s[x] - lse[i]), py = Base<T>::power(s[y] - lse[i]);
        ds[x] = px * ((keep_x ? ds[x] : T{0}) - delta[i]);
        ds[y] = py * ((keep_y ? ds[y] : T{0}) - delta[i]);
        s[x] = !dropout ? px : keep_x ? px * scale : T{0};
        s[y] = !dropout ? py : keep_y ? py * scale : T{0};
      });
}

template <class T>
void backward(const Rule& rule, const Tensor& q, const Tensor& k, const Tensor& v,
              const Tensor& out, const Tensor& lse, const Tensor& dout, Gradient& dq, Gradient& dk,
              Gradient& dv) {
  const Sizes& z = rule.sizes;
  const Heads<const T> hq(q), hk(k), hv(v), ho(out), hdo(dout);
  const int64_t groups = key_groups(z), blocks = z.query_blocks(), D = z.D;
  const bool scores = dq.to.defined() || dk.to.defined();
  // What each group gives to dq; with a single one, dq itself.
  Tensor parts;
  if (dq.to.defined() && groups > 1) parts = Tensor::empty({groups, z.B, z.N, z.H, D}, q.dtype());
  const int64_t elements = ScoreTile<T>::elements(z) + (2 * D + key_block + 2) * query_block;
  const int64_t grain = std::max<int64_t>(
      1, task_flops / (10 * z.N * (z.H / z.Hkv) * std::max<int64_t>(1, z.M / groups) * D));
  parallel_for(z.B * z.Hkv * groups, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch(static_cast<size_t>(elements) * sizeof(T) + 64 * 16);
    ScoreTile<T> tile(rule, scratch);
    T* const dot = scratch.take<T>(D * query_block);  // dOᵀ (D, lanes), times τ
    T* const ds = scratch.take<T>(key_block * query_block);
    T* const dq_block = scratch.take<T>(D * query_block);
    T *const l = scratch.take<T>(query_block), *const delta = scratch.take<T>(query_block);
    const T drop_scale = static_cast<T>(rule.dropout.scale());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task % groups, hkv = task / groups % z.Hkv, b = task / groups / z.Hkv;
      for (Gradient* const g : {&dk, &dv}) {
        if (!g->to.defined() || g->beta != 0) continue;
        const Heads<T> to(g->to);
        for (int64_t j = group * key_block; j < z.M; j += groups * key_block)
          for (int64_t n = j; n < std::min(j + key_block, z.M); ++n)
            std::fill_n(to.at(b, n, hkv), D, T{0});
      }
      for (int64_t index = 0; index < z.H / z.Hkv * blocks; ++index) {
        const int64_t h = hkv * (z.H / z.Hkv) + index / blocks;
        tile.start(hq, b, h, index % blocks);
        const int64_t first = tile.first(), count = tile.count(), lanes = tile.lanes();
        if (count) {
          pack_transposed(hdo.at(b, first, h), hdo.token, count, lanes, D,
                          static_cast<T>(rule.scale * rule.dropout.scale()), dot);
          const T* const from = lse.data<T>() + (b * z.H + h) * z.N + first;
          simd([&] {
            for (int64_t i = 0; i < lanes; ++i) {
              l[i] = i < count && from[i] != -infinity<T> ? from[i] : infinity<T>;
              delta[i] = i < count ? static_cast<T>(rule.scale) *
                                         kernels::row_dot(ho.at(b, first + i, h),
                                                          hdo.at(b, first + i, h), D)
                                   : T{0};
            }
          });
        }
        std::fill_n(dq_block, count * D, T{0});
        const Range keys = tile.keys();
        for (int64_t j = group * key_block; j < keys.end; j += groups * key_block) {
          const Range part{std::max(j, keys.begin), std::min(j + key_block, keys.end)};
          if (part.begin >= part.end) continue;
          tile.compute(part, hk.at(b, part.begin, hkv), hk.token);
          T* const s = tile.scores();
          if (scores)
            gemm_tile<T>(part.size(), lanes, D, {hv.at(b, part.begin, hkv), hv.token, 1}, dot,
                         lanes, ds, lanes, false);
          simd([&] {
            if (rule.dropout.on())
              score_gradients<true>(tile, part.size(), s, ds, l, delta, drop_scale);
            else
              score_gradients<false>(tile, part.size(), s, ds, l, delta, drop_scale);
          });
          if (dv.to.defined()) {
            const Heads<T> to(dv.to);
            gemm_tile<T>(part.size(), D, count, {s, lanes, 1}, hdo.at(b, first, h), hdo.token,
                         to.at(b, part.begin, hkv), to.token, true);
          }
          if (dk.to.defined()) {
            const Heads<T> to(dk.to);
            gemm_tile<T>(part.size(), D, count, {ds, lanes, 1}, hq.at(b, first, h), hq.token,
                         to.at(b, part.begin, hkv), to.token, true);
          }
          if (dq.to.defined())
            gemm_tile<T>(count, D, part.size(), {ds, 1, lanes}, hk.at(b, part.begin, hkv), hk.token,
                         dq_block, D, true);
        }
        if (!dq.to.defined()) continue;
        Tensor part = parts.defined() ? parts.select(0, group) : dq.to;
        const bool add = !parts.defined() && dq.beta != 0;
        const Heads<T> to(part);
        const int64_t rows = std::min(z.block_queries(), z.N - first);
        for (int64_t i = 0; i < rows; ++i) {
          T* const row = to.at(b, first + i, h);
          for (int64_t d = 0; d < D; ++d) {
            const T g = i < count ? dq_block[i * D + d] : T{0};
            row[d] = add ? row[d] + g : g;
          }
        }
      }
    }
  });
  if (!parts.defined()) return;
  const Heads<T> to(dq.to);
  parallel_for(z.B * z.N, std::max<int64_t>(1, (int64_t{1} << 15) / (groups * z.H * D)),
               [&](int64_t begin, int64_t end) {
                 const int64_t slab = z.B * z.N * z.H * D;
                 simd([&] {
                   for (int64_t n = begin; n < end; ++n)
                     for (int64_t h = 0; h < z.H; ++h) {
                       T* const row = to.at(n / z.N, n % z.N, h);
                       const T* const from = parts.data<T>() + (n * z.H + h) * D;
                       for (int64_t d = 0; d < D; ++d) {
                         T sum = dq.beta == 0 ? from[d] : row[d] + from[d];
                         for (int64_t g = 1; g < groups; ++g) sum += from[g * slab + d];
                         row[d] = sum;
                       }
                     }
                 });
               });
}

}  // namespace

Variable tiled_attention(const Variable& q_, const Variable& k_, const Variable& v_,
                         const TiledAttentionOptions& options) {
  const Shape &qs = q_.shape(), &ks = k_.shape();
  check<ShapeError>(qs.rank() == 4 && ks.rank() == 4 && ks == v_.shape() && qs[0] == ks[0] &&
                        qs[3] == ks[3] && qs.numel() > 0 && ks.numel() > 0 && qs[2] % ks[2] == 0,
                    "tiled_attention: q (B, N, H, D), k and v (B, M, Hkv, D) are wanted, H a "
                    "multiple of Hkv and nothing empty, not q ",
                    qs, ", k ", ks, ", v ", v_.shape());
  check<ShapeError>(is_float(q_.dtype()) && q_.dtype() == k_.dtype() && q_.dtype() == v_.dtype(),
                    "tiled_attention: one float dtype is wanted, not q ", q_.dtype(), ", k ",
                    k_.dtype(), ", v ", v_.dtype());
  const Sizes z{qs[0], qs[1], ks[1], qs[2], ks[2], qs[3]};
  check<ShapeError>(
      z.N == z.M || (!options.causal && options.window == 0 && options.slopes.empty()),
      "tiled_attention: positions of queries and keys are compared, but there are ", z.N, " and ",
      z.M);
  check<ShapeError>(options.slopes.empty() || static_cast<int64_t>(options.slopes.size()) == z.H,
                    "tiled_attention: ", options.slopes.size(), " slopes for ", z.H, " heads");
  check<ConfigError>(0 <= options.dropout && options.dropout < 1, "tiled_attention: probability ",
                     options.dropout, " of dropout is not in [0, 1)");
  check<ConfigError>(options.window >= 0, "tiled_attention: window ", options.window,
                     " is below 0");
  const Rule rule{z,
                  options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(z.D)),
                  options.causal,
                  options.window,
                  lengths_or("tiled_attention: key_lengths", options.key_lengths, z.B, z.M),
                  lengths_or("tiled_attention: query_lengths", options.query_lengths, z.B, z.N),
                  options.slopes,
                  ProbabilityDropout(options.dropout, options.generator)};
  const Variable q = with_contiguous_rows(q_), k = with_contiguous_rows(k_),
                 v = with_contiguous_rows(v_);
  Tensor out = Tensor::empty(qs, q.dtype()), lse = Tensor::empty({z.B, z.H, z.N}, q.dtype());
  dispatch_float(q.dtype(),
                 [&]<class T>() { forward<T>(rule, q.value(), k.value(), v.value(), out, lse); });
  // L, not the N x M probabilities: computing them again is cheaper than reading them.
  return record("tiled_attention", out, {q, k, v},
                [rule, q = q.value(), k = k.value(), v = v.value(), out, lse](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const Tensor dout = grad_out.strides()[3] == 1 ? grad_out : grad_out.contiguous();
                  auto [dq, dk, dv] = gradients_of(grad_in);
                  dispatch_float(q.dtype(), [&]<class T>() {
                    backward<T>(rule, q, k, v, out, lse, dout, dq, dk, dv);
                  });
                });
}

}  // namespace longhand::attention
