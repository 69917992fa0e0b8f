// y[…, j, …] = x[…, index[…, j, …], …]
// dx[…, i, …] = sum of dy[…, j, …] over the j with index[…, j, …] = i
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/parallel.h"

namespace longhand {
using namespace ops;
namespace {

// Calls line(x, y, index) with the offsets of each line along the last axis of three tensors whose
// other axes have the same sizes.
template <class F>
void for_lines(const Tensor& x, const Tensor& y, const Tensor& index, F line) {
  const Shape outer = y.shape().without_axis(-1);
  const std::array<Strides, 3> strides{x.strides(), y.strides(), index.strides()};
  const int64_t grain = kernels::elements_per_task / std::max<int64_t>(1, y.size(-1));
  parallel_for_each(outer.numel(), grain, [&](int64_t rest) {
    std::array<int64_t, 3> offset{};
    for (int axis = outer.rank() - 1; axis >= 0; --axis) {
      for (size_t k = 0; k < 3; ++k) offset[k] += rest % outer[axis] * strides[k][axis];
      rest /= outer[axis];
    }
    line(offset[0], offset[1], offset[2]);
  });
}

}  // namespace

Variable gather(const Variable& x, int axis, const Tensor& index) {
  check_float("gather", x);
  check<ShapeError>(index.dtype() == DType::i32, "gather: expected an index of i32, got ",
                    index.dtype());
  const int at = x.shape().index(axis);
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == at || index.size(i) == x.size(i);
  check<ShapeError>(fits, "gather: expected an index with the sizes of x except along axis ", axis,
                    ", got an index ", index.shape(), " and x ", x.shape());
  const int64_t n = x.size(at);
  Tensor distinct = index;  // an index that an axis repeats is checked once
  for (int i = 0; i < index.rank(); ++i)
    if (index.strides()[i] == 0 && index.size(i) > 1) distinct = distinct.slice(i, 0, 1);
  distinct = distinct.contiguous();
  for (const int32_t i :
       std::span(std::as_const(distinct).data<int32_t>(), is_dry() ? 0 : distinct.numel()))
    check<ShapeError>(0 <= i && i < n, "gather: index ", i, " is out of range along axis ", axis,
                      " of ", x.shape());

  const Tensor from = x.value().transpose(at, -1), places = index.transpose(at, -1);
  Tensor out = Tensor::empty_ordered(index.shape(), x.dtype(), x.value().strides());
  dispatch_float(out.dtype(), [&]<class T>() {
    Tensor to = out.transpose(at, -1);
    T* const y = to.data<T>();
    const T* const v = from.data<T>();
    const int32_t* const p = places.data<int32_t>();
    const int64_t m = to.size(-1), x_step = from.strides()[-1], y_step = to.strides()[-1],
                  p_step = places.strides()[-1];
    for_lines(from, to, places, [=](int64_t x0, int64_t y0, int64_t p0) {
      for (int64_t j = 0; j < m; ++j) y[y0 + j * y_step] = v[x0 + p[p0 + j * p_step] * x_step];
    });
  });
  return record("gather", out, {x}, [at, places](const Tensor& grad, std::span<GradSlot> slots) {
    const GradSlot::Accumulator sum = slots[0].accumulate();
    if (sum.beta == 0) sum.grad.fill(0);
    dispatch_float(grad.dtype(), [&]<class T>() {
      const Tensor from_y = grad.transpose(at, -1);
      Tensor to_x = sum.grad.transpose(at, -1);
      T* const dx = to_x.data<T>();
      const T* const dy = from_y.data<T>();
      const int32_t* const p = places.data<int32_t>();
      const int64_t m = from_y.size(-1), x_step = to_x.strides()[-1], y_step = from_y.strides()[-1],
                    p_step = places.strides()[-1];
      constexpr int64_t few = 256;  // terms per element: as many as f32 adds without losing digits
      const int64_t size = to_x.size(-1);
      for_lines(to_x, from_y, places, [=](int64_t x0, int64_t y0, int64_t p0) {
        if (m <= few) {
          for (int64_t j = 0; j < m; ++j)
            dx[x0 + p[p0 + j * p_step] * x_step] += dy[y0 + j * y_step];
          return;
        }
        std::vector<double> sums(size);
        for (int64_t j = 0; j < m; ++j)
          sums[p[p0 + j * p_step]] += static_cast<double>(dy[y0 + j * y_step]);
        for (int64_t i = 0; i < size; ++i) dx[x0 + i * x_step] += static_cast<T>(sums[i]);
      });
    });
  });
}

}  // namespace longhand
