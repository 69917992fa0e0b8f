// Tensors with awkward strides, and index arithmetic to compare with.
#pragma once

#include <vector>

#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "longhand/core/tensor.h"

namespace longhand {

struct ViewKind {
  bool holes = true;       // steps and margins between the elements
  bool broadcast = false;  // some axes with stride 0
};

inline int64_t pick(RandomStream& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low + 1)));
}

inline std::vector<int> random_order(RandomStream& random, int rank) {
  std::vector<int> order(rank);
  for (int i = 0; i < rank; ++i) order[i] = i;
  random.shuffle(order);
  return order;
}

/// Returns a view of new memory that holds small integers, with its axes in a random order.
inline Tensor random_view(const Shape& shape, DType dtype, RandomStream& random,
                          ViewKind kind = {}) {
  const std::vector<int> order = random_order(random, shape.rank());
  Shape whole;
  std::vector<int64_t> begin, step;
  for (int axis : order) {
    const int64_t n = shape[axis];
    const bool one = kind.broadcast && random.below(4) == 0;
    begin.push_back(kind.holes ? pick(random, 0, 1) : 0);
    step.push_back(kind.holes && random.below(3) == 0 ? 2 : 1);
    whole.push_back(one ? 1 : begin.back() + n * step.back());
  }
  Tensor memory = Tensor::empty(whole, DType::f64);
  for (int64_t i = 0; i < memory.numel(); ++i)
    memory.data<double>()[i] = static_cast<double>(pick(random, 0, 200)) / 2;
  Tensor view = memory.to(dtype);
  std::vector<int> back(order.size());
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t n = shape[order[i]];
    if (whole[i] != 1 || n * step[i] + begin[i] == 1)
      view = view.slice(i, begin[i], begin[i] + n * step[i], step[i]);
    back[order[i]] = i;
  }
  return view.permute(back).expand(shape);
}

/// Calls f(index) for every index of the shape, the last axis fastest.
template <class F>
void for_each_index(const Shape& shape, F f) {
  Shape index = shape;
  for (int i = 0; i < shape.rank(); ++i) index[i] = 0;
  for (int64_t n = shape.numel(); n > 0; --n) {
    f(static_cast<const Shape&>(index));
    for (int i = shape.rank() - 1; i >= 0 && ++index[i] == shape[i]; --i) index[i] = 0;
  }
}

inline int64_t offset_of(const Shape& index, const Strides& strides) {
  int64_t offset = 0;
  for (int i = 0; i < index.rank(); ++i) offset += index[i] * strides[i];
  return offset;
}

/// The values in row-major order, read by index arithmetic alone.
template <class T>
std::vector<T> values_of(const Tensor& t) {
  std::vector<T> values;
  for_each_index(t.shape(),
                 [&](const Shape& i) { values.push_back(t.data<T>()[offset_of(i, t.strides())]); });
  return values;
}

/// Sets the number of threads for a scope.
class WithThreads {
 public:
  explicit WithThreads(int n) : before_(threads()) { set_threads(n); }
  ~WithThreads() { set_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

}  // namespace longhand
