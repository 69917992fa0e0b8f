// y_j = x_j - m - log sum e^(x_k - m), m = max x          dx_j = dy_j - e^y_j sum dy_k
// A row in which every element is -inf, whose softmax is zeros, gives -inf and a gradient of zero.
#include <cmath>
#include <limits>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/function_of_rows.h"

namespace longhand {
using namespace ops;
namespace {

template <class T>
void log_softmax_row(const T* x, T* y, int64_t n) {
  const T m = kernels::row_max(x, n);
  if (m == -std::numeric_limits<T>::infinity()) {
    std::fill(y, y + n, m);
    return;
  }
  const T log_sum = std::log(kernels::exp_row(x, y, n, m));
  for (int64_t j = 0; j < n; ++j) y[j] = x[j] - m - log_sum;
}

template <class T>
void log_softmax_row_backward(const T* y, const T* dy, T* dx, int64_t n, T beta) {
  if (kernels::row_max(y, n) == -std::numeric_limits<T>::infinity())
    return kernels::row_accumulate(dx, n, beta, [](int64_t) { return T{0}; });
  const T sum = kernels::row_sum(dy, n);
  kernels::row_accumulate(dx, n, beta, [=](int64_t j) { return dy[j] - math::exp(y[j]) * sum; });
}

}  // namespace

Variable log_softmax(const Variable& x) {
  return function_of_rows(
      "log_softmax", x, [](auto... row) { log_softmax_row(row...); },
      [](auto... row) { log_softmax_row_backward(row...); });
}

}  // namespace longhand
