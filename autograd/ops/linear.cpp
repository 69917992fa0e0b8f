// y = x Wᵀ + b          dx = dy W,  dW = dyᵀ x,  db = sum of dy over the rows
#include <algorithm>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/gemm.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand {
namespace {

// A row-dense (…, width) as a matrix: a view.
Tensor as_matrix(const Tensor& t) {
  return t.in_memory_order().reshape({t.shape().without_axis(-1).numel(), t.size(-1)});
}

// The right factor of a product as BLAS reads it.
template <class T>
struct Right {
  Tensor tensor;  // (k, n)
  Trans trans;
  MatrixView<const T> view;

  Right(const Tensor& w, bool copy) : tensor(w), trans(Trans::no) {
    const int64_t k = w.size(0), n = w.size(1), down = w.strides()[0], across = w.strides()[1];
    if (!copy && across == 1 && down >= n) {
      view = {w.data<T>(), k, n, down};
    } else if (!copy && down == 1 && across >= k) {
      trans = Trans::yes;
      view = {w.data<T>(), n, k, across};
    } else {
      tensor = w.contiguous();
      view = {std::as_const(tensor).data<T>(), k, n, n};
    }
  }
};

// y = x w + beta y + bias for w (k, n), tile by tile of rows: the bias is added while a tile is in
// the cache.
template <class T>
void multiply_rows(Rows<const T> x, const Tensor& w, const T* bias, Rows<T> y, double beta) {
  const int64_t k = x.width, n = y.width;
  const T b = static_cast<T>(beta);
  if (n == 0) return;
  if (k == 0) {
    return for_rows(y.count, n, [=](int64_t r) {
      kernels::row_accumulate(y[r], n, b, [=](int64_t j) { return bias ? bias[j] : T{0}; });
    });
  }
  // OpenBLAS has kernels for products of up to 1e6 multiplications that beat its others, unless the
  // right factor is transposed; they pay if that can be had with tiles of some rows.
  constexpr int64_t small_product = 1'000'000, min_tile = 64;
  const bool small = k * n * min_tile <= small_product && y.count >= min_tile;
  const Right<T> right(w, small && w.strides()[1] != 1);
  const int64_t tile = small ? small_product / (k * n) / 16 * 16
                             : std::max(2 * min_tile, (int64_t{1} << 23) / (k * n));
  const int64_t tiles = (y.count + tile - 1) / tile;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 22) / (tile * k * n));  // some 80 µs
  parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t * tile, count = std::min(tile, y.count - row);
      gemm<T>(Trans::no, right.trans, T{1}, {x[row], count, k, k}, right.view, b,
              {y[row], count, n, n});
      if (!bias) continue;
      simd([&] {
        for (int64_t r = row; r < row + count; ++r)
          kernels::row_accumulate(y[r], n, T{1}, [bias](int64_t j) { return bias[j]; });
      });
    }
  });
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  check<ShapeError>(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1),
                    "linear: x ", x.shape(), " and weight ", weight.shape(), " do not multiply");
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "linear: bias ",
                    bias.shape(), " for weight ", weight.shape());
  check<ShapeError>(weight.dtype() == x.dtype() && (!bias.defined() || bias.dtype() == x.dtype()),
                    "linear: x of ", x.dtype(), ", weight of ", weight.dtype(), ", bias of ",
                    bias.dtype());
  const Tensor in = row_dense(x.value());
  Tensor out = empty_rows_like(in, weight.size(0));
  dispatch_float(in.dtype(), [&]<class T>() {
    const Tensor b = bias.defined() ? bias.value().contiguous() : Tensor();
    multiply_rows<T>(rows<T>(in), weight.value().transpose(0, 1),
                     b.defined() ? b.data<T>() : nullptr, rows<T>(out), 0);
  });
  return record("linear", out, {x, weight, bias},
                [x = in, weight = weight.value(), strides = out.strides()](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const Tensor dy = with_strides(grad_out, strides);
                  if (grad_in[0]) {
                    accumulate_with_strides(grad_in[0], x.strides(), [&](Tensor& dx, double beta) {
                      dispatch_float(x.dtype(), [&]<class T>() {
                        multiply_rows<T>(rows<T>(dy), weight, nullptr, rows<T>(dx), beta);
                      });
                    });
                  }
                  if (grad_in[1]) {
                    accumulate_with_strides(grad_in[1], contiguous_strides(weight.shape()),
                                            [&](Tensor& dw, double beta) {
                                              matmul_into(dw, as_matrix(dy).transpose(0, 1),
                                                          as_matrix(x), 1, beta);
                                            });
                  }
                  if (grad_in[2]) {
                    const GradSlot::Accumulator db = grad_in[2].accumulate();
                    dispatch_float(x.dtype(), [&]<class T>() {
                      const auto from = rows<T>(dy);
                      kernels::sum_middle<T>(from.data, 1, from.count, from.width,
                                             db.grad.data<T>(), 1, db.beta);
                    });
                  }
                });
}

}  // namespace longhand
