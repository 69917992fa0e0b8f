// Z' = Z W / 4,  P = A Z,  U = 7 I - P,  V = 15 I - P U,  W = 13 I - P V          from dZ' = G:
//   dW = Zᵀ G / 4,  dV = -Pᵀ dW,  dU = -Pᵀ dV,  dP = -(dW Vᵀ + dV Uᵀ + dU)
//   dZ = G Wᵀ / 4 + Aᵀ dP,  dA += dP Zᵀ
// Each matrix of a batch is a task whose data fits in the caches. Z of each iteration is kept; P,
// U, V and W are computed again.
#include <algorithm>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/parallel.h"

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

  // c = factor a b, or c += factor a b.
  void multiply(T factor, Strided<T> a, Strided<T> b, T* c, bool add = false) {
    T* const panels = (*this)[slots - 1];
    kernels::pack_panels<T>(m_, m_, b, factor, 0, panels_of(m_), panels);
    kernels::gemm_panels<T>(m_, m_, m_, a, panels, c, m_, add);
  }
  // c = diagonal I - a b
  void subtract_from(T diagonal, Strided<T> a, Strided<T> b, T* c) {
    multiply(T{-1}, a, b, c);
    for (int64_t i = 0; i < m_; ++i) c[i * m_ + i] += diagonal;
  }

 private:
  static constexpr int slots = 8;  // 7 matrices, and the panels of a right factor
  static int64_t panels_of(int64_t m) {
    return (m + kernels::panel_width - 1) / kernels::panel_width;
  }
  int64_t size() const { return kernels::panels_size(m_, m_); }  // at least m²

  int64_t m_;
  Tensor memory_;
};

// Writes P, U, V and W to work matrices 0 … 3.
template <class T>
void polynomials(Products<T>& x, const T* A, const T* Z, int64_t m) {
  T *const P = x[0], *const U = x[1], *const V = x[2], *const W = x[3];
  x.multiply(T{1}, x.plain(A), x.plain(Z), P);
  for (int64_t i = 0; i < m * m; ++i) U[i] = (i % (m + 1) == 0 ? T{7} : T{0}) - P[i];
  x.subtract_from(T{15}, x.plain(P), x.plain(U), V);
  x.subtract_from(T{13}, x.plain(P), x.plain(V), W);
}

// G = dZ' is replaced by dZ; dA += the contribution of this iteration.
template <class T>
void iteration_backward(Products<T>& x, const T* A, const T* Z, T* G, T* dA, int64_t m) {
  polynomials(x, A, Z, m);
  T *const P = x[0], *const U = x[1], *const V = x[2], *const W = x[3];
  T *const dW = x[4], *const dV = x[5], *const dP = x[6], *const dU = dP;
  x.multiply(T{1} / 4, x.transposed(Z), x.plain(G), dW);
  x.multiply(T{-1}, x.transposed(P), x.plain(dW), dV);
  x.multiply(T{-1}, x.transposed(P), x.plain(dV), dU);
  for (int64_t i = 0; i < m * m; ++i) dP[i] = -dU[i];
  x.multiply(T{-1}, x.plain(dW), x.transposed(V), dP, true);
  x.multiply(T{-1}, x.plain(dV), x.transposed(U), dP, true);
  x.multiply(T{1}, x.plain(dP), x.transposed(Z), dA, true);
  T* const dZ = dW;  // dW is no longer needed
  x.multiply(T{1} / 4, x.plain(G), x.transposed(W), dZ);
  x.multiply(T{1}, x.transposed(A), x.plain(dP), dZ, true);
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
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      Products<T> x(m);
      for (int64_t matrix = begin; matrix < end; ++matrix) {
        const T* Z = first.data<T>() + matrix * m * m;
        for (int64_t i = 0; i < iterations; ++i) {
          T* const next = i + 1 < iterations ? steps.data<T>() + (i * count + matrix) * m * m
                                             : out.data<T>() + matrix * m * m;
          polynomials(x, A.data<T>() + matrix * m * m, Z, m);
          x.multiply(T{1} / 4, x.plain(Z), x.plain(x[3]), next);
          Z = next;
        }
      }
    });
  });
  return record(
      "iterative_pinv", out, {a, start},
      [A, first, steps, iterations, count, m](const Tensor& grad_out, std::span<GradSlot> slots) {
        Tensor G = grad_out.is_contiguous() ? grad_out.clone() : grad_out.contiguous();
        Tensor dA = Tensor::zeros(A.shape(), A.dtype());
        dispatch_float(A.dtype(), [&]<class T>() {
          parallel_for(count, 1, [&](int64_t begin, int64_t end) {
            Products<T> x(m);
            for (int64_t matrix = begin; matrix < end; ++matrix) {
              const int64_t at = matrix * m * m;
              for (int64_t i = iterations - 1; i >= 0; --i)
                iteration_backward(
                    x, A.data<T>() + at,
                    i ? steps.data<T>() + (i - 1) * count * m * m + at : first.data<T>() + at,
                    G.data<T>() + at, dA.data<T>() + at, m);
            }
          });
        });
        if (slots[0]) slots[0].take(dA);
        if (slots[1]) slots[1].take(G);
      });
}

}  // namespace longhand
