#include "longhand/attention/bases/highest.h"

#include <algorithm>
#include <limits>

#include "longhand/core/simd.h"

namespace longhand::attention {

template <class T>
void Highest<T>::clear() {
  bound_ = -std::numeric_limits<T>::infinity();
  entries_.clear();
}

// Most scores of a long row are below the bound, and are only compared with it. A score equal to the
// bound is not needed either: `count` scores with smaller indices are at least as high.
template <class T>
void Highest<T>::add(const T* scores, int64_t n, int64_t first) {
  constexpr int64_t together = 32;
  const auto most = static_cast<size_t>(2 * count_ + 2 * together);
  for (int64_t begin = 0; begin < n; begin += together) {
    const int64_t size = std::min(together, n - begin);
    const T* const block = scores + begin;
    int32_t above = 0;
    simd([&above, block, size, bound = bound_] {
      for (int64_t j = 0; j < size; ++j) above += block[j] > bound;
    });
    if (above == 0) continue;
    size_t used = entries_.size();
    entries_.resize(used + static_cast<size_t>(size));
    for (int64_t j = 0; j < size; ++j) {  // without branches, which could not be predicted
      entries_[used] = {block[j], static_cast<int32_t>(first + begin + j)};
      used += block[j] > bound_;
    }
    entries_.resize(used);
    if (used >= most) reduce();
  }
}

// Omits all entries but the highest.
template <class T>
void Highest<T>::reduce() {
  if (static_cast<int64_t>(entries_.size()) <= count_) return;
  const auto last = entries_.begin() + (count_ - 1);
  std::nth_element(entries_.begin(), last, entries_.end(), [](const Entry& a, const Entry& b) {
    return a.score > b.score || (a.score == b.score && a.index < b.index);
  });
  bound_ = last->score;
  entries_.resize(static_cast<size_t>(count_));
}

template <class T>
void Highest<T>::append_to(std::vector<int32_t>& to) {
  reduce();
  const auto begin = static_cast<int64_t>(to.size());
  for (const Entry& entry : entries_) to.push_back(entry.index);
  std::sort(to.begin() + begin, to.end());
}

template class Highest<float>;
template class Highest<double>;

}  // namespace longhand::attention
