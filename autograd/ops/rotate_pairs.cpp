// (a, b) -> (a c - b s, a s + b c) for channels a = x_l and b = x_{l+R}, l < R; the others stay
// da = c da' + s db', db = c db' - s da'; dc = a da' + b db', ds = a db' - b da'
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

// Calls f(r, t) for every row r of row-major memory and the corresponding row t of turns.
template <class T, class F>
void for_turned_rows(const Tensor& turns, int64_t width, F f) {
  Shape rows = turns.shape();
  Strides steps = turns.strides();
  rows[-1] = 1, steps[-1] = 0;
  parallel_for(rows.numel(), rows_per_task(width), [&](int64_t begin, int64_t end) {
    simd([&, data = turns.data<T>()] {
      kernels::for_stretches(
          rows, steps, begin, end - begin,
          [&](int64_t offset, int64_t done, int64_t) { f(begin + done, data + offset); });
    });
  });
}

}  // namespace

Variable rotate_pairs(const Variable& x, const Variable& turns) {
  check_float_pair("rotate_pairs", x, turns);
  check<ShapeError>(
      x.rank() >= 1 && turns.rank() >= 1 && turns.size(-1) % 2 == 0 && turns.size(-1) <= x.size(-1),
      "rotate_pairs: expected x (…, D) and cosines and sines (…, 2 R), 2 R <= D, got x ", x.shape(),
      " and ", turns.shape());
  Shape shape = x.shape();
  const int64_t D = shape[-1], R = turns.size(-1) / 2;
  shape[-1] = 2 * R;
  const Variable w = broadcast_to(turns, shape);
  const Tensor in = x.value().contiguous(),
               t = w.value().strides()[-1] == 1 ? w.value() : w.value().contiguous();
  Tensor out = Tensor::empty(in.shape(), in.dtype());
  dispatch_float(in.dtype(), [&]<class T>() {
    for_turned_rows<T>(t, D, [=, from = in.data<T>(), to = out.data<T>()](int64_t r, const T* c) {
      const T *const a = from + r * D, *const b = a + R, *const s = c + R;
      T* const y = to + r * D;
#pragma GCC ivdep
      for (int64_t l = 0; l < R; ++l) {
        y[l] = a[l] * c[l] - b[l] * s[l];
        y[l + R] = a[l] * s[l] + b[l] * c[l];
      }
      std::copy(a + 2 * R, a + D, y + 2 * R);
    });
  });
  return record(
      "rotate_pairs", out, {x, w},
      [t, D, R, x = w.requires_grad() ? in : Tensor()](const Tensor& grad_out,
                                                       std::span<GradSlot> slots) {
        const Tensor dout = grad_out.contiguous();
        StridedGradient dx(slots[0], dout.strides()), dw(slots[1], contiguous_strides(t.shape()));
        dispatch_float(dout.dtype(), [&]<class T>() {
          const GradientTo<T> to_x = dx.in<T>(), to_w = dw.in<T>();
          const T *const dy = dout.data<T>(), *const from = to_w ? x.data<T>() : nullptr;
          for_turned_rows<T>(t, D, [=](int64_t r, const T* c) {
            const T *const da = dy + r * D, *const db = da + R, *const s = c + R;
            if (to_x) {
              T* const to = to_x.to + r * D;
              const auto put = [=](int64_t first, int64_t n, auto f) {
                kernels::row_accumulate(to + first, n, to_x.beta, f);
              };
              put(0, R, [=](int64_t l) { return c[l] * da[l] + s[l] * db[l]; });
              put(R, R, [=](int64_t l) { return c[l] * db[l] - s[l] * da[l]; });
              put(2 * R, D - 2 * R, [=](int64_t l) { return da[2 * R + l]; });
            }
            if (to_w) {
              const T *const a = from + r * D, *const b = a + R;
              T* const to = to_w.to + r * 2 * R;
              kernels::row_accumulate(to, R, to_w.beta,
                                      [=](int64_t l) { return a[l] * da[l] + b[l] * db[l]; });
              kernels::row_accumulate(to + R, R, to_w.beta,
                                      [=](int64_t l) { return a[l] * db[l] - b[l] * da[l]; });
            }
          });
        });
        dx.finish();
        dw.finish();
      });
}

}  // namespace longhand
