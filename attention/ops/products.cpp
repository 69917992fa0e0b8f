// y_l = c_l r_i r_j for pairs (i, j) of elements of r, which is computed from a row x:
//
//   dr_i = Σ_l c_l r_j dy_l over the pairs (i, j) and (j, i), that of i = j counted twice
#include "longhand/attention/ops/products.h"

#include <algorithm>
#include <numbers>

#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/parallel.h"
#include "longhand/core/view.h"

namespace longhand::attention {
namespace {

constexpr int64_t grain = 16;  // rows per task

// The `count` products of rows x (…, D) of floats: write(x, r) sets r, of n elements; each(f) calls
// f(l, i, j, c) for the pair of index l; give(x, dr, dx) turns the gradient of r into that of x.
template <class Write, class Each, class Give>
Variable products(const char* name, const Variable& x, int64_t n, int64_t count, const Write& write,
                  const Each& each, const Give& give) {
  const Tensor in = x.value().contiguous();
  Shape shape = x.shape();
  shape[-1] = count;
  Tensor out = Tensor::empty(shape, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const Rows<const T> from = rows<T>(in);
    const Rows<T> to = rows<T>(out);
    parallel_for(from.count, grain, [&](int64_t begin, int64_t end) {
      ShortVector<T> of_row(static_cast<size_t>(n));
      T* const r = of_row.data();
      for (int64_t row = begin; row < end; ++row) {
        write(from[row], r);
        T* const y = to[row];
        each([=](int64_t l, int64_t i, int64_t j, double c) {
          y[l] = static_cast<T>(c) * r[i] * r[j];
        });
      }
    });
  });
  return record(name, out, {x}, [=](const Tensor& grad_out, std::span<GradSlot> slots) {
    const Tensor dy = grad_out.contiguous();
    Tensor dx = Tensor::empty(in.shape(), in.dtype());
    dispatch_float(in.dtype(), [&]<class T>() {
      const Rows<const T> from = rows<T>(in), back = rows<T>(dy);
      const Rows<T> to = rows<T>(dx);
      parallel_for(from.count, grain, [&](int64_t begin, int64_t end) {
        ShortVector<T> of_row(static_cast<size_t>(2 * n));
        T *const r = of_row.data(), *const dr = r + n;
        for (int64_t row = begin; row < end; ++row) {
          write(from[row], r);
          std::fill_n(dr, n, T{0});
          each([=, g = back[row]](int64_t l, int64_t i, int64_t j, double c) {
            const T w = static_cast<T>(c) * g[l];
            dr[i] += w * r[j];
            dr[j] += w * r[i];
          });
          give(from[row], dr, to[row]);
        }
      });
    });
    slots[0].take(dx);
  });
}

}  // namespace

Variable quadratic_products(const Variable& x, bool lower_degrees) {
  ops::check_float("quadratic_products", x);
  const int64_t D = x.size(-1), one = lower_degrees ? 1 : 0;  // r = [1, x] or x
  return products(
      "quadratic_products", x, one + D, one * (1 + D) + D * (D + 1) / 2,
      [=]<class T>(const T* a, T* r) {
        if (one) r[0] = 1;
        std::copy_n(a, D, r + one);
      },
      [=](auto f) {
        int64_t l = 0;
        for (int64_t i = 0; one && i <= D; ++i) f(l++, 0, i, 1.0);
        for (int64_t i = one; i < one + D; ++i) {
          f(l++, i, i, 1 / std::numbers::sqrt2);
          for (int64_t j = i + 1; j < one + D; ++j) f(l++, i, j, 1.0);
        }
      },
      [=]<class T>(const T*, const T* dr, T* dx) { std::copy_n(dr + one, D, dx); });
}

Variable shifted_products(const Variable& x, int64_t nu) {
  ops::check_float("shifted_products", x);
  const int64_t D = x.size(-1), n = 2 * D;
  return products(
      "shifted_products", x, n, n * nu,
      [=]<class T>(const T* a, T* r) {
        for (int64_t i = 0; i < D; ++i) {
          r[i] = std::max(a[i], T{0});
          r[D + i] = std::max(-a[i], T{0});
        }
      },
      [=](auto f) {
        for (int64_t shift = 1, l = 0; shift <= nu; ++shift)
          for (int64_t i = 0; i < n; ++i, ++l)
            f(l, i, i + shift < n ? i + shift : i + shift - n, 1.0);
      },
      [=]<class T>(const T* a, const T* dr, T* dx) {
        for (int64_t i = 0; i < D; ++i) dx[i] = a[i] > 0 ? dr[i] : a[i] < 0 ? -dr[D + i] : T{0};
      });
}

}  // namespace longhand::attention
