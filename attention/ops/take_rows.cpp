// y_i = x_(j_i);  dx_j = Σ dy_i over the i with j_i = j.
#include "longhand/attention/ops/take_rows.h"

#include <algorithm>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// Calls visit(i, row of x, row of y) for the rows i of a head that are taken.
template <class X, class Y, class F>
void for_rows(const Tensor& index, const tile::Heads<X>& x, const tile::Heads<Y>& y, int64_t b,
              int64_t h, F visit) {
  const int64_t n = index.size(2);
  const int32_t* const at = index.data<int32_t>() + (b * index.size(1) + h) * n;
  for (int64_t i = 0; i < n; ++i)
    if (at[i] >= 0) visit(x.at(b, at[i], h), y.at(b, i, h));
}

}  // namespace

Variable take_rows(const Variable& x_, const Tensor& index) {
  ops::check_float("take_rows", x_);
  check<ShapeError>(x_.rank() == 4 && index.rank() == 3 && index.dtype() == DType::i32 &&
                        index.size(0) == x_.size(0) && index.size(1) == x_.size(2),
                    "take_rows: expected x (B, N, H, D) and an index (B, H, n) i32, got x ",
                    x_.shape(), ", index ", index.dtype(), " ", index.shape());
  const Variable x = tile::with_contiguous_rows(x_);
  const Tensor at = index.contiguous();
  const int64_t B = x.size(0), H = x.size(2), D = x.size(3);
  Tensor out = Tensor::zeros({B, at.size(2), H, D}, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const tile::Heads<const T> from(x.value());
    const tile::Heads<T> to(out);
    parallel_for(B * H, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head)
        for_rows(at, from, to, head / H, head % H,
                 [D](const T* row, T* copy) { std::copy_n(row, D, copy); });
    });
  });
  return record("take_rows", out, {x},
                [at, B, H, D](const Tensor& grad, std::span<GradSlot> slots) {
                  const Tensor dy = tile::with_contiguous_rows(grad);
                  tile::Gradient dx = tile::gradient_of(slots[0]);
                  if (dx.beta == 0) dx.to.fill(0);
                  dispatch_float(dy.dtype(), [&]<class T>() {
                    const tile::Heads<T> to(dx.to);
                    const tile::Heads<const T> from(dy);
                    parallel_for(B * H, 1, [&](int64_t begin, int64_t end) {
                      for (int64_t head = begin; head < end; ++head)
                        simd([&] {
                          for_rows(at, to, from, head / H, head % H, [D](T* sum, const T* row) {
#pragma GCC ivdep
                            for (int64_t d = 0; d < D; ++d) sum[d] += row[d];
                          });
                        });
                    });
                  });
                });
}

}  // namespace longhand::attention
