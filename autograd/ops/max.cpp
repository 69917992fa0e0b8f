// y = x_k, k the first index with x_k = max x (or the first NaN)          dx_k = dy, others 0
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/middle.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

constexpr int64_t max_block = 256;  // columns whose maxima fit in the L1 cache

template <class T>
int32_t argmax_row(const T* x, int64_t n) {
  const T m = kernels::row_max(x, n);
  int64_t k = 0;
  if (m != m)
    while (x[k] == x[k]) ++k;
  else
    while (x[k] != m) ++k;
  return static_cast<int32_t>(k);
}

// For `columns` columns of x (count, inner).
template <class T>
void argmax_columns(const T* x, int64_t count, int64_t inner, int64_t columns, int32_t* index) {
  T best[max_block];
  std::copy(x, x + columns, best);
  std::fill(index, index + columns, 0);
  for (int64_t k = 1; k < count; ++k) {
    const T* const row = x + k * inner;
    for (int64_t i = 0; i < columns; ++i) {
      // NaN replaces a number, but not another NaN: !(row <= best) is true if either is NaN, and
      // best == best rules out that best is NaN.
      const bool better = !(row[i] <= best[i]) && best[i] == best[i];
      best[i] = better ? row[i] : best[i];
      index[i] = better ? static_cast<int32_t>(k) : index[i];
    }
  }
}

Tensor argmax(const Tensor& x, int axis) {
  const Tensor dense = x.is_dense() ? x : x.contiguous();
  Shape kept = x.shape();
  kept[axis] = 1;
  Tensor index = Tensor::empty_ordered(kept, DType::i32, dense.strides());
  const Middle m(dense, axis);
  dispatch_float(x.dtype(), [&]<class T>() {
    const T* const from = dense.data<T>();
    int32_t* const to = index.data<int32_t>();
    if (m.inner == 1)
      return for_rows(m.outer, m.count,
                      [=](int64_t o) { to[o] = argmax_row(from + o * m.count, m.count); });
    const int64_t blocks = (m.inner + max_block - 1) / max_block;
    for_rows(m.outer * blocks, m.count * std::min(m.inner, max_block), [=](int64_t task) {
      const int64_t o = task / blocks, i = task % blocks * max_block;
      argmax_columns(from + o * m.count * m.inner + i, m.count, m.inner,
                     std::min(max_block, m.inner - i), to + o * m.inner + i);
    });
  });
  return index;
}

}  // namespace

Variable max(const Variable& x, int axis, bool keep_axis) {
  check_float("max", x);
  check<ShapeError>(x.size(axis) > 0, "max: axis ", axis, " of ", x.shape(), " is empty");
  const Variable largest = gather(x, axis, argmax(x.value(), axis));
  return keep_axis ? largest : squeeze(largest, axis);
}

}  // namespace longhand
