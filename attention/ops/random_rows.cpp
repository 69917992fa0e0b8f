#include "longhand/attention/ops/random_rows.h"

#include <algorithm>

#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

Tensor random_rows(const Generator& generator, int64_t H, int64_t n, double spread, bool weights,
                   bool causal, DType dtype) {
  Tensor out = Tensor::empty({H, n, n}, dtype);
  dispatch_float(dtype, [&]<class T>() {
    parallel_for_each(H * n, std::max<int64_t>(1, 4096 / n), [&](int64_t at) {
      const int64_t i = at % n, keys = weights && causal ? i + 1 : n;
      const Generator own =
          generator.fork(static_cast<uint64_t>(at / n)).fork(static_cast<uint64_t>(i));
      T* const row = out.data<T>() + at * n;
      for (int64_t j = 0; j < keys; ++j)
        row[j] = static_cast<T>(spread * own.normal(static_cast<uint64_t>(j)));
      if (weights) simd([=] { kernels::softmax_row(row, row, keys); });
      std::fill(row + keys, row + n, T{0});
    });
  });
  return out;
}

}  // namespace longhand::attention
