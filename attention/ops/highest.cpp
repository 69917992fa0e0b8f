#include "longhand/attention/ops/highest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

static_assert(std::endian::native == std::endian::little);  // Highest::add()

namespace {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
template <class T>
constexpr T never = -std::numeric_limits<T>::infinity();

// Maps the bits of floats to integers in the same order: the order of negative floats is reversed.
// Also maps the result back to the bits of the float.
template <class Bits>
Bits in_order(Bits x) {
  return x ^ (x >> std::numeric_limits<Bits>::digits & std::numeric_limits<Bits>::max());
}
template <class T>
BitsOf<T> ordered(T x) {
  return in_order(std::bit_cast<BitsOf<T>>(x + T{0}));  // -0 as 0
}

template <class Bits>
int64_t number_from(Bits least, const Bits* bits, int64_t n) {
  Bits found = 0;
  for (int64_t j = 0; j < n; ++j) found += bits[j] >= least;
  return static_cast<int64_t>(found);
}
// The count-th highest of n >= count numbers and how many are at least as high, or a lower one if
// at most `enough` are. Each pass over the numbers bisects twice: by value, since values are spread
// more evenly than their bits, and by bits after passes_of_values passes. Inside simd().
template <class T>
std::pair<BitsOf<T>, int64_t> find_highest(const BitsOf<T>* bits, int64_t n, int64_t count,
                                           int64_t enough) {
  using Bits = BitsOf<T>;
  constexpr int passes_of_values = 8;
  const auto value = [](Bits x) { return std::bit_cast<T>(in_order(x)); };
  // Not captured by any lambda below, so that the loop is vectorised.
  Bits lowest = bits[0], highest = bits[0];
  for (int64_t j = 0; j < n; ++j) {
    lowest = bits[j] < lowest ? bits[j] : lowest;
    highest = bits[j] > highest ? bits[j] : highest;
  }
  // At least `count` values are >= least, and fewer are >= above.
  Bits least = lowest, above = highest + 1;
  int64_t at_least = n;
  for (int pass = 0; at_least > enough && above - 1 > least; ++pass) {
    const auto between = [&](Bits a, Bits b) {
      const Bits middle = pass < passes_of_values ? ordered((value(a) + value(b)) / 2) : a;
      return middle > a && middle < b ? middle : std::midpoint(a, b);
    };
    const Bits half = between(least, above),
               quarters[] = {between(least, half), half, between(half, above)};
    Bits found[3] = {};
    for (int64_t j = 0; j < n; ++j)
      for (int i = 0; i < 3; ++i) found[i] += bits[j] >= quarters[i];
    for (int i = 0; i < 3; ++i) {  // without branches, which would be unpredictable
      const bool many = found[i] >= count;
      least = many ? quarters[i] : least;
      at_least = many ? found[i] : at_least;
      above = many ? above : std::min(above, quarters[i]);
    }
  }
  return {least, at_least};
}

}  // namespace

template <class T>
void Highest<T>::clear() {
  bound_ = never<T>;
  scores_.clear();
  indices_.clear();
}

// Most scores of a long row are below the bound and are only compared with it. A score equal to the
// bound is not needed either: `count` scores with smaller indices are at least as high.
template <class T>
void Highest<T>::add(const T* scores, int64_t n, int64_t first) {
  constexpr int64_t together = 1024, word = sizeof(uint64_t), bits = 64;
  raise_bound(scores, n);
  alignas(bits) uint8_t above[together];
  int32_t hits[together];
  for (int64_t begin = 0; begin < n; begin += together) {
    const int64_t size = std::min(together, n - begin);
    const T* const block = scores + begin;
    std::fill_n(above + size / bits * bits, size % bits ? bits : 0, uint8_t{0});
    simd([=, bound = bound_, all = &above[0]] {
      // Copies, since byte stores could alias what the lambda refers to.
      uint8_t* const to = all;
      const T *const from = block, limit = bound;
      for (int64_t j = 0, end = size; j < end; ++j) to[j] = !(from[j] <= limit);
    });
    int64_t found = 0;
    for (int64_t j = 0; j < size; j += bits) {
      uint64_t mask = 0;  // for 64 scores: few unpredictable branches
      for (int64_t w = 0; w < bits; w += word) {
        uint64_t bytes;
        std::memcpy(&bytes, above + j + w, word);
        mask |= (bytes * 0x0102040810204080 >> 56) << w;  // byte b to bit b
      }
      for (; mask; mask &= mask - 1)
        hits[found++] = static_cast<int32_t>(j + std::countr_zero(mask));
    }
    const size_t before = scores_.size(), after = before + static_cast<size_t>(found);
    scores_.resize(after), indices_.resize(after);
    T* const to_scores = scores_.data() + before;
    int32_t* const to_indices = indices_.data() + before;
    for (int64_t h = 0; h < found; ++h) {
      const T score = block[hits[h]];
      to_scores[h] = std::isnan(score) ? std::numeric_limits<T>::infinity() : score;
      to_indices[h] = static_cast<int32_t>(first + begin) + hits[h];
    }
    if (static_cast<int64_t>(scores_.size()) >= 2 * count_ + 64) reduce();
  }
}

// Raises the bound to just below a score that at least `count` of these n reach: their count-th
// highest or, for long rows, that of maxima of many more groups than `count`: few others exceed it.
template <class T>
void Highest<T>::raise_bound(const T* scores, int64_t n) {
  constexpr int64_t run = 64;  // groups whose maxima stay in registers
  if (n < count_) return;
  const int64_t many = (6 * count_ + run - 1) / run * run, groups = n < 2 * many ? n : many,
                size = n / groups;
  bits_.reserve(std::bit_ceil(static_cast<size_t>(groups)));  // longer rows seldom reallocate
  bits_.resize(static_cast<size_t>(groups));
  Bits least = 0;
  simd([=, this, bits = bits_.data(), &least] {
    if (size == 1)
      for (int64_t j = 0; j < n; ++j)
        bits[j] = ordered(never<T> < scores[j] ? scores[j] : never<T>);
    for (int64_t g = 0; size > 1 && g < groups; g += run) {
      T top[run];
      std::fill_n(top, run, never<T>);
      for (int64_t i = 0; i < size; ++i) {
        const T* const row = scores + i * groups + g;
        for (int64_t l = 0; l < run; ++l) top[l] = top[l] < row[l] ? row[l] : top[l];
      }
      for (int64_t l = 0; l < run; ++l) bits[g + l] = ordered(top[l]);
    }
    least = find_highest<T>(bits, groups, count_, size == 1 ? count_ : count_ + count_ / 8).first;
  });
  if (least > ordered(never<T>))
    bound_ = std::max(bound_, std::nextafter(std::bit_cast<T>(in_order(least)), never<T>));
}

// Removes all entries but the highest, and keeps the order of the rest.
template <class T>
void Highest<T>::reduce() {
  const auto n = static_cast<int64_t>(scores_.size());
  if (n <= count_) return;
  bits_.resize(scores_.size());
  simd([this, n, scores = scores_.data(), indices = indices_.data(), bits = bits_.data()] {
    for (int64_t j = 0; j < n; ++j) bits[j] = ordered(scores[j]);
    const auto [least, at_least] = find_highest<T>(bits, n, count_, count_);
    // Among entries equal to the count-th highest, as many as there is room for.
    const int64_t room =
        at_least == count_ ? count_ : count_ - number_from<Bits>(least + 1, bits, n);
    Bits lowest = std::numeric_limits<Bits>::max();
    for (int64_t j = 0; j < n; ++j) {
      const Bits own = bits[j] < least ? std::numeric_limits<Bits>::max() : bits[j];
      lowest = own < lowest ? own : lowest;
    }
    bound_ = std::bit_cast<T>(in_order(lowest));
    int64_t kept = 0, equal = 0;
    for (int64_t j = 0; j < n; ++j) {  // without branches, which would be unpredictable
      const bool tie = bits[j] == least, keep = (bits[j] > least) | (tie & (equal < room));
      equal += tie;
      scores[kept] = scores[j];
      indices[kept] = indices[j];
      kept += keep;
    }
  });
  scores_.resize(static_cast<size_t>(count_));
  indices_.resize(static_cast<size_t>(count_));
}

template class Highest<float>;
template class Highest<double>;

namespace {

constexpr int64_t query_block = 24, key_block = 4096;  // scores in memory at once

constexpr int64_t task_flops = int64_t{1} << 24;

// The keys that a query may attend to, and the bias added to their scores.
class Seen {
 public:
  // For scores (B, H, N, M).
  Seen(const HighestOptions& options, const Shape& scores)
      : causal_(options.causal), queries_(scores[2]), keys_(scores[3]) {
    if (options.lengths.defined()) lengths_ = options.lengths.to_vector<int32_t>();
    if (options.keep.defined()) keep_ = options.keep.expand(scores);
    if (options.bias.defined()) bias_ = options.bias.expand(scores);
  }

  // Queries of a sample; queries at padding attend to nothing.
  int64_t queries(int64_t b) const {
    return lengths_.empty() ? queries_
                            : std::min<int64_t>(queries_, lengths_[static_cast<size_t>(b)]);
  }
  // Keys from this index on are hidden from query i.
  int64_t end(int64_t b, int64_t i) const {
    if (causal_) return i + 1;
    return lengths_.empty() ? keys_ : lengths_[static_cast<size_t>(b)];
  }
  // Completes n scores of query i against the keys from `first` on; -inf for keys hidden from it.
  template <class T>
  void complete(int64_t b, int64_t h, int64_t i, int64_t first, int64_t n, T* scores) const {
    const auto at = [&](const Tensor& x, int64_t j) {
      const Strides& s = x.strides();
      return b * s[0] + h * s[1] + i * s[2] + (first + j) * s[3];
    };
    if (bias_.defined())
      for (int64_t j = 0; j < n; ++j) scores[j] += bias_.data<T>()[at(bias_, j)];
    if (keep_.defined())
      for (int64_t j = 0; j < n; ++j)
        if (!keep_.data<uint8_t>()[at(keep_, j)]) scores[j] = never<T>;
  }

 private:
  bool causal_;
  int64_t queries_, keys_;
  std::vector<int32_t> lengths_;
  Tensor keep_, bias_;
};

// Selects the keys of a block of queries, given the scores of one block of keys at a time.
template <class T>
class Selection {
 public:
  Selection(int64_t k, int64_t keys, Scratch& scratch)
      : width_(std::min(key_block, keys)),
        scores_(scratch.take<T>(query_block * width_)),
        rows_(query_block, Highest<T>(k)) {}

  // For queries q (., D) from `first` on, and the keys of their head in panels.
  void run(const Seen& seen, int64_t b, int64_t h, int64_t first, kernels::Strided<T> q, int64_t D,
           const T* panels, Tensor& lists) {
    const int64_t count = std::min(query_block, seen.queries(b) - first);
    if (count <= 0) return;
    for (Highest<T>& row : rows_) row.clear();
    const int64_t end = seen.end(b, first + count - 1);
    for (int64_t begin = 0; begin < end; begin += key_block) {
      const int64_t keys = std::min(key_block, end - begin);
      kernels::gemm_panels<T>(count, keys, D, q, panels + begin * D, scores_, width_, false);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t visible = std::min(keys, seen.end(b, first + r) - begin);
        T* const scores = scores_ + r * width_;
        seen.complete(b, h, first + r, begin, visible, scores);
        rows_[static_cast<size_t>(r)].add(scores, visible, begin);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      keys_.clear();
      rows_[static_cast<size_t>(r)].append_to(keys_);
      std::copy(keys_.begin(), keys_.end(),
                lists.data<int32_t>() +
                    ((b * lists.size(1) + h) * lists.size(2) + first + r) * lists.size(3));
    }
  }

 private:
  int64_t width_;
  T* scores_;  // (query_block, width)
  ShortVector<Highest<T>> rows_;
  ShortVector<int32_t> keys_;
};

}  // namespace

Tensor highest_keys(const Tensor& queries, const Tensor& keys, int64_t count,
                    const HighestOptions& options) {
  const int64_t B = queries.size(0), N = queries.size(1), H = queries.size(2), D = queries.size(3),
                M = keys.size(1), panels = kernels::panels_size(D, M),
                blocks = (N + query_block - 1) / query_block;
  Tensor lists = Tensor::full({B, H, N, std::min(count, M)}, -1, DType::i32);
  const Tensor q = queries.contiguous(), k = keys.contiguous();
  const Seen seen(options, {B, H, N, M});
  dispatch_float(q.dtype(), [&]<class T>() {
    Tensor packed = Tensor::empty({B, H, panels}, q.dtype());
    parallel_for_each(B * H, 1, [&](int64_t head) {
      kernels::pack_panels<T>(D, M, {k.data<T>() + (head / H * M * H + head % H) * D, 1, H * D},
                              static_cast<T>(options.scale), 0, panels / (D * kernels::panel_width),
                              packed.data<T>() + head * panels);
    });
    const int64_t grain = std::max<int64_t>(1, task_flops / (2 * query_block * M * D));
    parallel_for(B * H * blocks, grain, [&](int64_t begin, int64_t end) {
      Workspace<Selection<T>> selection(count, M);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t head = task / blocks, b = head / H, h = head % H,
                      first = task % blocks * query_block;
        selection->run(seen, b, h, first, {q.data<T>() + ((b * N + first) * H + h) * D, H * D, 1},
                       D, packed.data<T>() + head * panels, lists);
      }
    });
  });
  return lists;
}

void append_list(const Tensor& lists, int64_t row, std::vector<int32_t>& to) {
  const int64_t most = lists.size(-1);
  const int32_t* const list = lists.data<int32_t>() + row * most;
  to.insert(to.end(), list, std::find(list, list + most, -1));
}

}  // namespace longhand::attention
