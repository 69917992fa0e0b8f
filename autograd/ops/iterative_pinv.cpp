// With P = A Z, U = P - 7 I, V = P U + 15 I, W = P V - 13 I:  Z' = -Z W / 4, and from dZ' = -4 G:
//   dW = Zᵀ G,  dV = Pᵀ dW,  dU = Pᵀ dV,  dP = dU + dW Vᵀ + dV Uᵀ
//   dZ = G Wᵀ + Aᵀ dP,  dA += dP Zᵀ
// Each matrix of a batch is a task whose data fit in the caches. Z of each iteration is kept; P, U,
// V and W are recomputed.
#include <algorithm>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand {
using namespace ops;
namespace {

using kernels::Strided;

// Products of (m, m) matrices on one thread, with their memory.
template <class T>
class Products {
 public:
  explicit Products(int64_t m) : m_(m), memory_(Tensor::empty({slots * size()}, dtype_of<T>)) {}

  /// Work matrix i.
  T* operator[](int i) { return memory_.data<T>() + i * size(); }
  Strided<T> plain(const T* x) const { return {x, m_, 1}; }
  Strided<T> transposed(const T* x) const { return {x, 1, m_}; }

  // c = a b, or c += a b.
  void multiply(Strided<T> a, Strided<T> b, T* c, bool add = false) {
    // The rows of a small right factor that is not transposed stay in the L1 cache without packing.
    if (b.col == 1 && m_ <= 64) return kernels::gemm_tile<T>(m_, m_, m_, a, b.data, m_, c, m_, add);
    T* const panels = (*this)[slots - 1];
    kernels::pack_panels<T>(m_, m_, b, T{1}, 0, kernels::panels_of(m_), panels);
    kernels::gemm_panels<T>(m_, m_, m_, a, panels, c, m_, add);
  }
  // c = a b + diagonal I
  void multiply_shifted(Strided<T> a, Strided<T> b, T diagonal, T* c) {
    multiply(a, b, c);
    shift(c, diagonal);
  }
  // c += diagonal I
  void shift(T* c, T diagonal) const {
    for (int64_t i = 0; i < m_; ++i) c[i * m_ + i] += diagonal;
  }

 private:
  static constexpr int slots = 8;  // 7 matrices, and the panels of a right factor
  int64_t size() const { return kernels::panels_size(m_, m_); }  // at least m²

  int64_t m_;
  Tensor memory_;
};

// to = -from / 4; to may be from.
template <class T>
void scale(const T* from, T* to, int64_t m) {
  simd([=] {
    for (int64_t i = 0; i < m * m; ++i) to[i] = T{-0.25} * from[i];
  });
}

// Writes P, U, V and W to work matrices 0 … 3.
template <class T>
void polynomials(Products<T>& x, const T* A, const T* Z, int64_t m) {
  T *const P = x[0], *const U = x[1], *const V = x[2], *const W = x[3];
  x.multiply(x.plain(A), x.plain(Z), P);
  std::copy_n(P, m * m, U);
  x.shift(U, T{-7});
  x.multiply_shifted(x.plain(P), x.plain(U), T{15}, V);
  x.multiply_shifted(x.plain(P), x.plain(V), T{-13}, W);
}

// Replaces dZ' in G with dZ; dA += the contribution of this iteration.
template <class T>
void iteration_backward(Products<T>& x, const T* A, const T* Z, T* G, T* dA, int64_t m) {
  polynomials(x, A, Z, m);
  T *const P = x[0], *const U = x[1], *const V = x[2], *const W = x[3];
  T *const dW = x[4], *const dV = x[5], *const dP = x[6];
  scale(G, G, m);
  x.multiply(x.transposed(Z), x.plain(G), dW);
  x.multiply(x.transposed(P), x.plain(dW), dV);
  x.multiply(x.transposed(P), x.plain(dV), dP);  // dU
  x.multiply(x.plain(dW), x.transposed(V), dP, true);
  x.multiply(x.plain(dV), x.transposed(U), dP, true);
  x.multiply(x.plain(dP), x.transposed(Z), dA, true);
  T* const dZ = dW;  // dW is no longer needed
  x.multiply(x.plain(G), x.transposed(W), dZ);
  x.multiply(x.transposed(A), x.plain(dP), dZ, true);
  std::copy_n(dZ, m * m, G);
}

}  // namespace

Variable iterative_pinv(const Variable& a, const Variable& start, int64_t iterations) {
  check_float_pair("iterative_pinv", a, start);
  check<ShapeError>(a.rank() >= 2 && a.size(-2) == a.size(-1) && a.shape() == start.shape(),
                    "iterative_pinv: expected a and start of one shape (…, m, m), got ", a.shape(),
                    " and ", start.shape());
  check<ConfigError>(iterations >= 0, "iterative_pinv: expected iterations >= 0, got ", iterations);
  if (iterations == 0 || a.value().numel() == 0) return start;
  const int64_t m = a.size(-1), count = a.value().numel() / (m * m);
  const Tensor A = a.value().contiguous(), first = start.value().contiguous();
  // Z at the start of each iteration but the first.
  Tensor steps = Tensor::empty({iterations - 1, count, m, m}, a.dtype());
  Tensor out = Tensor::empty(a.shape(), a.dtype());
  dispatch_float(a.dtype(), [&]<class T>() {
    parallel_for_each(count, 1, [&](int64_t matrix) {
      Products<T> x(m);
      const T* Z = first.data<T>() + matrix * m * m;
      for (int64_t i = 0; i < iterations; ++i) {
        T* const next = i + 1 < iterations ? steps.data<T>() + (i * count + matrix) * m * m
                                           : out.data<T>() + matrix * m * m;
        polynomials(x, A.data<T>() + matrix * m * m, Z, m);
        scale(x[3], x[3], m);
        x.multiply(x.plain(Z), x.plain(x[3]), next);
        Z = next;
      }
    });
  });
  return record(
      "iterative_pinv", out, {a, start},
      [A, first, steps, iterations, count, m](const Tensor& grad_out, std::span<GradSlot> slots) {
        Tensor G = grad_out.is_contiguous() ? grad_out.clone() : grad_out.contiguous();
        Tensor dA = Tensor::zeros(A.shape(), A.dtype());
        dispatch_float(A.dtype(), [&]<class T>() {
          parallel_for_each(count, 1, [&](int64_t matrix) {
            Products<T> x(m);
            const int64_t at = matrix * m * m;
            for (int64_t i = iterations - 1; i >= 0; --i)
              iteration_backward(
                  x, A.data<T>() + at,
                  i ? steps.data<T>() + (i - 1) * count * m * m + at : first.data<T>() + at,
                  G.data<T>() + at, dA.data<T>() + at, m);
          });
        });
        if (slots[0]) slots[0].take(dA);
        if (slots[1]) slots[1].take(G);
      });
}

}  // namespace longhand
