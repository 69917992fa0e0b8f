#include "longhand/attention/ops/highest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

static_assert(std::endian::native == std::endian::little);  // Highest::add()

template <class T>
void Highest<T>::clear() {
  bound_ = -std::numeric_limits<T>::infinity();
  scores_.clear();
  indices_.clear();
}

// Most scores of a long row are below the bound, and are only compared with it. A score equal to the
// bound is not needed either: `count` scores with smaller indices are at least as high.
template <class T>
void Highest<T>::add(const T* scores, int64_t n, int64_t first) {
  constexpr int64_t together = 128, word = sizeof(uint64_t);
  const int64_t most = 2 * count_ + 64;
  alignas(64) uint8_t above[together];
  for (int64_t begin = 0; begin < n; begin += together) {
    const int64_t size = std::min(together, n - begin);
    const T* const block = scores + begin;
    if (size < together) std::fill_n(above, together, uint8_t{0});
    simd([=, to = above, bound = bound_] {
      for (int64_t j = 0; j < size; ++j) to[j] = block[j] > bound;
    });
    for (int64_t w = 0; w < size; w += word) {
      uint64_t bytes;
      std::memcpy(&bytes, above + w, word);
      for (; bytes; bytes &= bytes - 1) {  // the lowest byte that is not 0
        const int64_t j = w + (std::countr_zero(bytes) >> 3);
        if (!(block[j] > bound_)) continue;
        scores_.push_back(block[j]);
        indices_.push_back(static_cast<int32_t>(first + begin + j));
        if (static_cast<int64_t>(scores_.size()) >= most) reduce();
      }
    }
  }
}

// Omits all entries but the highest, and keeps the order of the others. The bits of floats compare as
// integers, except that the order of negative ones is reversed; so the bits of the count-th highest
// score are found one after the other, by counting.
template <class T>
void Highest<T>::reduce() {
  const auto n = static_cast<int64_t>(scores_.size());
  if (n <= count_) return;
  bits_.resize(scores_.size());
  simd([this, n, scores = scores_.data(), indices = indices_.data(), bits = bits_.data()] {
    constexpr Bits magnitude = std::numeric_limits<Bits>::max();
    for (int64_t j = 0; j < n; ++j) {
      const auto x = std::bit_cast<Bits>(scores[j] + T{0});  // -0 as 0
      bits[j] = x ^ (x >> std::numeric_limits<Bits>::digits & magnitude);
    }
    const auto number = [=](Bits least) {
      Bits found = 0;
      for (int64_t j = 0; j < n; ++j) found += bits[j] >= least;
      return static_cast<int64_t>(found);
    };
    Bits least = std::numeric_limits<Bits>::min();
    int64_t at_least = n;
    for (Bits bit = least; bit != 0 && at_least > count_;
         bit = static_cast<Bits>(static_cast<std::make_unsigned_t<Bits>>(bit) >> 1)) {
      const Bits higher = least ^ bit;
      const int64_t found = number(higher);
      if (found < count_) continue;
      least = higher;
      at_least = found;
    }
    // Of those equal to the count-th highest as many as there is room for.
    const int64_t room = least == magnitude ? count_ : count_ - number(least + 1);
    int64_t kept = 0, equal = 0;
    T lowest = std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < n; ++j) {
      const bool tie = bits[j] == least, keep = (bits[j] > least) | (tie & (equal < room));
      const T score = scores[j];
      equal += tie;
      lowest = keep && score < lowest ? score : lowest;
      scores[kept] = score;  // without branches, which could not be predicted
      indices[kept] = indices[j];
      kept += keep;
    }
    bound_ = lowest;
  });
  scores_.resize(static_cast<size_t>(count_));
  indices_.resize(static_cast<size_t>(count_));
}

template <class T>
void Highest<T>::append_to(std::vector<int32_t>& to) {
  reduce();
  to.insert(to.end(), indices_.begin(), indices_.end());
}

template class Highest<float>;
template class Highest<double>;

namespace {

constexpr int64_t query_block = 64, key_block = 512;  // whose scores are in memory at once

// The keys that a query may attend to, and what a bias adds to their scores.
class Seen {
 public:
  // For scores (B, H, N, M).
  Seen(const HighestOptions& options, const Shape& scores)
      : causal_(options.causal), queries_(scores[2]), keys_(scores[3]) {
    if (options.lengths.defined()) lengths_ = options.lengths.to_vector<int32_t>();
    if (options.keep.defined()) keep_ = options.keep.expand(scores);
    if (options.bias.defined()) bias_ = options.bias.expand(scores);
  }

  // Queries of a sample; those of padding attend to nothing.
  int64_t queries(int64_t b) const {
    return lengths_.empty() ? queries_ : lengths_[static_cast<size_t>(b)];
  }
  // Keys from this index on are hidden from query i.
  int64_t end(int64_t b, int64_t i) const {
    if (causal_) return i + 1;
    return lengths_.empty() ? keys_ : lengths_[static_cast<size_t>(b)];
  }
  // Completes n scores of query i against the keys from `first` on; -inf for those it may not see.
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
        if (!keep_.data<uint8_t>()[at(keep_, j)]) scores[j] = -std::numeric_limits<T>::infinity();
  }

 private:
  bool causal_;
  int64_t queries_, keys_;
  std::vector<int32_t> lengths_;
  Tensor keep_, bias_;
};

// Selects the keys of a block of queries, from the scores of one block of keys at a time.
template <class T>
class Selection {
 public:
  explicit Selection(int64_t k)
      : scores_(query_block * key_block), rows_(query_block, Highest<T>(k)) {}

  // For queries q (., D) from `first` on, and the keys of their head in panels.
  void run(const Seen& seen, int64_t b, int64_t h, int64_t first, kernels::Strided<T> q, int64_t D,
           const T* panels, Tensor& lists) {
    const int64_t count = std::min(query_block, seen.queries(b) - first);
    if (count <= 0) return;
    for (Highest<T>& row : rows_) row.clear();
    const int64_t end = seen.end(b, first + count - 1);
    for (int64_t begin = 0; begin < end; begin += key_block) {
      const int64_t keys = std::min(key_block, end - begin);
      kernels::gemm_panels<T>(count, keys, D, q, panels + begin * D, scores_.data(), key_block,
                              false);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t visible = std::min(keys, seen.end(b, first + r) - begin);
        T* const scores = scores_.data() + r * key_block;
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
  std::vector<T> scores_;  // (query_block, key_block)
  std::vector<Highest<T>> rows_;
  std::vector<int32_t> keys_;
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
    parallel_for(B * H, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head)
        kernels::pack_panels<T>(D, M, {k.data<T>() + (head / H * M * H + head % H) * D, 1, H * D},
                                static_cast<T>(options.scale), 0,
                                panels / (D * kernels::panel_width),
                                packed.data<T>() + head * panels);
    });
    parallel_for(B * H * blocks, 1, [&](int64_t begin, int64_t end) {
      Selection<T> selection(count);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t head = task / blocks, b = head / H, h = head % H,
                      first = task % blocks * query_block;
        selection.run(seen, b, h, first, {q.data<T>() + ((b * N + first) * H + h) * D, H * D, 1}, D,
                      packed.data<T>() + head * panels, lists);
      }
    });
  });
  return lists;
}

HighestOfRows highest_of_rows(const Tensor& scores, int64_t count) {
  const Tensor s = scores.contiguous();
  const int64_t M = s.size(-1), rows = s.numel() / M, most = std::min(count, M);
  Shape shape = s.shape();
  shape[-1] = most;
  HighestOfRows out{Tensor::zeros(s.shape(), DType::u8), Tensor::full(shape, -1, DType::i32)};
  dispatch_float(s.dtype(), [&]<class T>() {
    parallel_for(rows, std::max<int64_t>(1, (1 << 14) / M), [&](int64_t begin, int64_t end) {
      Highest<T> highest(most);
      std::vector<int32_t> selected;
      for (int64_t r = begin; r < end; ++r) {
        highest.clear();
        highest.add(s.data<T>() + r * M, M);
        selected.clear();
        highest.append_to(selected);
        std::copy(selected.begin(), selected.end(), out.lists.data<int32_t>() + r * most);
        for (const int32_t j : selected) out.chosen.data<uint8_t>()[r * M + j] = 1;
      }
    });
  });
  return out;
}

}  // namespace longhand::attention
