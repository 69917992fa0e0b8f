#include "longhand/core/linalg.h"

#include <lapacke.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "longhand/core/dry_run.h"
#include "longhand/core/gemm.h"

namespace longhand {
namespace {

int lapack_int_of(int64_t n) {
  check<ShapeError>(n <= INT32_MAX, "size ", n, " exceeds the 32-bit integers of LAPACK");
  return static_cast<int>(n);
}

void check_matrix(const Tensor& a, const char* what) {
  check<ShapeError>(a.rank() == 2 && a.numel() > 0 && is_float(a.dtype()), what,
                    ": expected a non-empty matrix of floats, got ", a.shape(), " of ", a.dtype());
  check_blas(1);
}

}  // namespace

Qr qr(const Tensor& a) {
  check_matrix(a, "qr");
  const int m = lapack_int_of(a.size(0)), n = lapack_int_of(a.size(1)), k = std::min(m, n);
  Qr out{Tensor::empty({m, k}, a.dtype()), Tensor::zeros({k, n}, a.dtype())};
  if (is_dry()) return out;
  dispatch_float(a.dtype(), [&]<class T>() {
    std::vector<T> factor = a.to_vector<T>(), tau(k);
    const auto geqrf = for_type<T>(LAPACKE_sgeqrf, LAPACKE_dgeqrf);
    const auto orgqr = for_type<T>(LAPACKE_sorgqr, LAPACKE_dorgqr);
    check(geqrf(LAPACK_ROW_MAJOR, m, n, factor.data(), n, tau.data()) == 0, "qr: geqrf failed for ",
          a.shape());
    T* const r = out.r.data<T>();
    for (int i = 0; i < k; ++i)
      for (int j = i; j < n; ++j) r[i * n + j] = factor[i * n + j];
    T* const q = out.q.data<T>();
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < k; ++j) q[i * k + j] = factor[i * n + j];
    check(orgqr(LAPACK_ROW_MAJOR, m, k, k, q, k, tau.data()) == 0, "qr: orgqr failed for ",
          a.shape());
    // Q R = (Q S)(S R) for any diagonal S of signs: choose S = sign(diag R).
    for (int j = 0; j < k; ++j) {
      if (!(r[j * n + j] < 0)) continue;
      for (int i = 0; i < m; ++i) q[i * k + j] = -q[i * k + j];
      for (int c = j; c < n; ++c) r[j * n + c] = -r[j * n + c];
    }
  });
  return out;
}

Svd svd(const Tensor& a) {
  check_matrix(a, "svd");
  const int m = lapack_int_of(a.size(0)), n = lapack_int_of(a.size(1)), k = std::min(m, n);
  Svd out{Tensor::empty({m, k}, a.dtype()), Tensor::empty({k}, a.dtype()),
          Tensor::empty({k, n}, a.dtype())};
  if (is_dry()) return out;
  dispatch_float(a.dtype(), [&]<class T>() {
    Tensor same = Tensor::empty(a.shape(), a.dtype());  // which gesdd overwrites
    copy_into(same, a);
    T* const copy = same.data<T>();
    for (int64_t i = 0; i < same.numel(); ++i)  // LAPACK calls others an invalid argument
      check(std::isfinite(copy[i]), "svd: expected finite elements in a matrix ", a.shape(),
            ", got ", copy[i]);
    const int info = for_type<T>(LAPACKE_sgesdd, LAPACKE_dgesdd)(
        LAPACK_ROW_MAJOR, 'S', m, n, copy, n, out.s.data<T>(), out.u.data<T>(), k, out.vt.data<T>(),
        n);
    check(info == 0, "svd: LAPACK did not converge for a matrix ", a.shape(), " (info ", info, ")");
  });
  return out;
}

Tensor symmetric_eigenvalues(const Tensor& a) {
  check_matrix(a, "symmetric_eigenvalues");
  check<ShapeError>(a.size(0) == a.size(1), "symmetric_eigenvalues: expected a square matrix, got ",
                    a.shape());
  const int n = lapack_int_of(a.size(0));
  Tensor out = Tensor::empty({n}, a.dtype());
  if (is_dry()) return out;
  dispatch_float(a.dtype(), [&]<class T>() {
    std::vector<T> copy = a.to_vector<T>();
    const int info = for_type<T>(LAPACKE_ssyevd, LAPACKE_dsyevd)(LAPACK_ROW_MAJOR, 'N', 'L', n,
                                                                 copy.data(), n, out.data<T>());
    check(info == 0, "symmetric_eigenvalues: LAPACK did not converge for a matrix ", a.shape(),
          " (info ", info, ")");
  });
  return out;
}

Svd inverted_svd(const Tensor& a, double tolerance) {
  Svd out = svd(a);
  if (is_dry()) return out;
  dispatch_float(a.dtype(), [&]<class T>() {
    const int64_t k = out.s.numel(), m = a.size(0), n = a.size(1);
    const double noise = static_cast<double>(std::max(m, n)) *
                         static_cast<double>(std::numeric_limits<T>::epsilon());
    T* const s = out.s.data<T>();
    const T least = static_cast<T>(std::max(tolerance, noise)) * s[0];
    for (int64_t j = 0; j < k; ++j) {
      if (s[j] > least) {
        s[j] = 1 / s[j];
        continue;
      }
      s[j] = 0;
      for (int64_t i = 0; i < m; ++i) out.u.data<T>()[i * k + j] = 0;
      std::fill_n(out.vt.data<T>() + j * n, n, T{0});
    }
  });
  return out;
}

Tensor pseudo_inverse(const Svd& inverted) {
  const auto& [u, s, vt] = inverted;
  Tensor scaled = u.clone();  // A⁺ = V S⁻¹ Uᵀ
  if (!is_dry())
    dispatch_float(s.dtype(), [&]<class T>() {
      const int64_t k = s.numel();
      for (int64_t i = 0; i < scaled.numel(); ++i) scaled.data<T>()[i] *= s.data<T>()[i % k];
    });
  Tensor out = Tensor::empty({vt.size(1), u.size(0)}, s.dtype());
  matmul_into(out, vt.transpose(0, 1), scaled.transpose(0, 1));
  return out;
}

}  // namespace longhand
