// Matrix products of views, on top of OpenBLAS.
#pragma once

#include <string>
#include <string_view>

#include "longhand/core/simd.h"
#include "longhand/core/tensor.h"
#include "longhand/core/view.h"

namespace longhand {

enum class Trans { no, yes };

/// c = alpha op(a) op(b) + beta c on one thread; beta = 0 never reads c. op(a) is (m, k), op(b)
/// (k, n), c (m, n). Throws ShapeError if they are not. T is float or double.
template <class T>
void gemm(Trans trans_a, Trans trans_b, T alpha, MatrixView<const T> a, MatrixView<const T> b,
          T beta, MatrixView<T> c);

/// out = alpha a b + beta out for a (…, m, k), b (…, k, n), out (…, m, n), in parallel. The batch
/// axes of a and b broadcast to those of out. a and b may have any strides: views whose last or
/// second to last axis has stride 1 are read in place, others are copied first. The rows of out
/// must be contiguous. The split of the work depends on the shapes alone.
/// Throws ShapeError if shapes or dtypes do not match.
void matmul_into(Tensor& out, const Tensor& a, const Tensor& b, double alpha = 1, double beta = 0);

/// Returns the shape of a b, with broadcast batch axes. Throws ShapeError if there is none.
Shape matmul_shape(const Shape& a, const Shape& b);

/// Checks that the OpenBLAS in this process can be called from `threads` threads at once, and pins
/// it to one thread inside. Throws ConfigError with the build found and the one expected.
void check_blas(int threads);

/// Describes the BLAS in use, such as "OpenBLAS 0.3.21 pthread Haswell". Results differ between CPU
/// kernels (the last word), so checkpoints record it.
std::string blas_description();

/// Makes OpenBLAS use better kernels if its own choice uses less than isa(), and sets
/// OPENBLAS_CORETYPE for child processes. On a CPU newer than itself, OpenBLAS chooses kernels for
/// an old one; OPENBLAS_CORETYPE overrides its choice. Call this before other threads run; programs
/// do, the library does not. Throws ConfigError as isa() does.
void use_better_blas_core();
/// Advice for the user if OpenBLAS still uses less than isa(); otherwise empty.
std::string blas_advice();
/// The OPENBLAS_CORETYPE whose kernels use the instruction set `used`, if those of `core`, a name
/// from openblas_get_corename(), use less; otherwise empty.
std::string better_blas_core(std::string_view core, Isa used);

}  // namespace longhand
