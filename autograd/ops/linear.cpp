// y = x Wᵀ + b          dx = dy W,  dW = dyᵀ x,  db = sum of dy over the rows
#include <algorithm>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/gemm.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand {
namespace {

// A row-dense (…, width) as a matrix: a view.
Tensor as_matrix(const Tensor& t) {
  return t.in_memory_order().reshape({t.shape().without_axis(-1).numel(), t.size(-1)});
}

// y += bias for `count` rows.
template <class T>
void add_bias(const T* bias, T* y, int64_t count, int64_t width) {
  simd([&] {
    for (int64_t r = 0; r < count; ++r)
      kernels::row_accumulate(y + r * width, width, T{1}, [bias](int64_t j) { return bias[j]; });
  });
}

// y = x w + beta y + bias for w (k, n), row-dense x and y, and beta 0 or 1.
template <class T>
void multiply_rows(const Tensor& x, const Tensor& w, const T* bias, Tensor& y, double beta) {
  const Rows<const T> from = rows<T>(x);
  const Rows<T> to = rows<T>(y);
  const int64_t k = from.width, n = to.width;
  if (n == 0) return;
  if (!kernels::has_tile_kernels<T>()) {
    Tensor matrix = as_matrix(y);
    matmul_into(matrix, as_matrix(x), w, 1, beta);
    if (bias)
      parallel_for(to.count, rows_per_task(n),
                   [&](int64_t begin, int64_t end) { add_bias(bias, to[begin], end - begin, n); });
    return;
  }
  const Tensor weight = w.strides()[0] == 1 || w.strides()[1] == 1 ? w : w.contiguous();
  Tensor packed = Tensor::empty({kernels::panels_size(k, n)}, w.dtype());
  T* const panels = packed.data<T>();
  constexpr int64_t width = kernels::panel_width;
  parallel_for((n + width - 1) / width, rows_per_task(width * (k + 1)),
               [&, b = weight.data<T>()](int64_t begin, int64_t end) {
                 kernels::pack_panels<T>(k, n, {b, weight.strides()[0], weight.strides()[1]}, 1,
                                         begin, end, panels);
               });
  // The bias is added while a block is in the cache.
  constexpr int64_t block = 96, task = int64_t{1} << 22;  // multiplications, some 80 µs
  parallel_for(
      (to.count + block - 1) / block, std::max<int64_t>(1, task / (block * (k + 1) * n)),
      [&](int64_t begin, int64_t end) {
        for (int64_t r = begin * block; r < std::min(end * block, to.count); r += block) {
          const int64_t count = std::min(block, to.count - r);
          kernels::gemm_panels<T>(count, n, k, {from[r], k, 1}, panels, to[r], n, beta != 0);
          if (bias) add_bias(bias, to[r], count, n);
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
    multiply_rows<T>(in, weight.value().transpose(0, 1), b.defined() ? b.data<T>() : nullptr, out,
                     0);
  });
  return record(
      "linear", out, {x, weight, bias},
      [x = in, weight = weight.value(), strides = out.strides()](const Tensor& grad_out,
                                                                 std::span<GradSlot> grad_in) {
        const Tensor dy = with_strides(grad_out, strides);
        if (grad_in[0]) {
          accumulate_with_strides(grad_in[0], x.strides(), [&](Tensor& dx, double beta) {
            dispatch_float(x.dtype(),
                           [&]<class T>() { multiply_rows<T>(dy, weight, nullptr, dx, beta); });
          });
        }
        if (grad_in[1]) {
          accumulate_with_strides(
              grad_in[1], contiguous_strides(weight.shape()), [&](Tensor& dw, double beta) {
                matmul_into(dw, as_matrix(dy).transpose(0, 1), as_matrix(x), 1, beta);
              });
        }
        if (grad_in[2]) {
          const GradSlot::Accumulator db = grad_in[2].accumulate();
          dispatch_float(x.dtype(), [&]<class T>() {
            const auto from = rows<T>(dy);
            kernels::sum_middle<T>(from.data, 1, from.count, from.width, db.grad.data<T>(), 1,
                                   db.beta);
          });
        }
      });
}

}  // namespace longhand
