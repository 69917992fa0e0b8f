// y_i = x_(j_i);  dx_j = Σ dy_i over the i with j_i = j.
#include "longhand/attention/ops/take_rows.h"

#include <algorithm>
#include <vector>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// Calls visit(j_i, i) for the rows of a head; j_i < 0: none is taken.
template <class F>
void for_rows(const Tensor& index, int64_t head, F visit) {
  const int64_t n = index.size(2);
  const int32_t* const at = index.data<int32_t>() + head * n;
  for (int64_t i = 0; i < n; ++i) visit(at[i], i);
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
  Tensor out = Tensor::empty({B, at.size(2), H, D}, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const tile::Heads<const T> from(x.value());
    const tile::Heads<T> to(out);
    parallel_for_each(B * H, 1, [&](int64_t head) {
      for_rows(at, head, [&, b = head / H, h = head % H](int64_t j, int64_t i) {
        if (j >= 0)
          std::copy_n(from.at(b, j, h), D, to.at(b, i, h));
        else
          std::fill_n(to.at(b, i, h), D, T{0});
      });
    });
  });
  return record("take_rows", out, {x},
                [at, B, N = x.size(1), H, D](const Tensor& grad, std::span<GradSlot> slots) {
                  const Tensor dy = tile::with_contiguous_rows(grad);
                  Tensor dx = Tensor::empty({B, N, H, D}, dy.dtype());
                  dispatch_float(dy.dtype(), [&]<class T>() {
                    const tile::Heads<T> to(dx);
                    const tile::Heads<const T> from(dy);
                    parallel_for_each(B * H, 1, [&](int64_t head) {
                      const int64_t b = head / H, h = head % H;
                      std::vector<double> sums(static_cast<size_t>(N * D));
                      simd([&, sum = sums.data()] {
                        for_rows(at, head, [&](int64_t j, int64_t i) {
                          if (j < 0) return;
                          const T* const row = from.at(b, i, h);
#pragma GCC ivdep
                          for (int64_t d = 0; d < D; ++d)
                            sum[j * D + d] += static_cast<double>(row[d]);
                        });
                        for (int64_t j = 0; j < N; ++j) std::copy_n(sum + j * D, D, to.at(b, j, h));
                      });
                    });
                  });
                  slots[0].take(dx);
                });
}

}  // namespace longhand::attention
