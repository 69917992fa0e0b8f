#include "longhand/core/kernels/reduce.h"

#include <algorithm>
#include <utility>

#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/core/view.h"

namespace longhand::kernels {
namespace {

constexpr int64_t max_columns = 1024;

// Rows (elements, if inner is 1) of one partial sum.
int64_t chunk_of(int64_t inner) {
  if (inner == 1) return 8192;
  return std::clamp<int64_t>(elements_per_task / inner, 32, 512);
}

// out[o, c, i] = beta out[o, c, i] + (sum over rows r of chunk c of x[o, r, i]) / divisor
template <class T>
void sum_chunks(const T* x, int64_t outer, int64_t count, int64_t chunk, int64_t inner, T* out,
                T divisor, T beta) {
  const int64_t chunks = std::max<int64_t>(1, (count + chunk - 1) / chunk);
  const int64_t columns = std::min(inner, max_columns), blocks = (inner + columns - 1) / columns;
  const int64_t work = std::clamp<int64_t>(count, 1, chunk) * columns;
  const int64_t grain = std::max<int64_t>(1, elements_per_task / work);
  parallel_for(outer * chunks * blocks, grain, [&](int64_t begin, int64_t end) {
    simd([&] {
      T sum[max_columns];
      for (int64_t task = begin; task < end; ++task) {
        const int64_t o = task / blocks / chunks, c = task / blocks % chunks;
        const int64_t i = task % blocks * columns, n = std::min(columns, inner - i);
        const int64_t rows = std::min(chunk, count - c * chunk);
        const T* from = x + (o * count + c * chunk) * inner + i;
        if (inner == 1)
          sum[0] = row_sum(from, rows);
        else
          sum_rows(
              rows, n, [=](int64_t r) { return from + r * inner; }, sum);
        row_accumulate(out + (o * chunks + c) * inner + i, n, beta,
                       [&sum, divisor](int64_t j) { return sum[j] / divisor; });
      }
    });
  });
}

}  // namespace

template <class T>
void sum_middle(const T* x, int64_t outer, int64_t count, int64_t inner, T* out, double divisor,
                double beta) {
  if (outer == 0 || inner == 0) return;
  const int64_t chunk = chunk_of(inner), chunks = (count + chunk - 1) / chunk;
  if (chunks <= 1)
    return sum_chunks<T>(x, outer, count, chunk, inner, out, static_cast<T>(divisor),
                         static_cast<T>(beta));
  Tensor partial = Tensor::empty({outer, chunks, inner}, dtype_of<T>);
  T* const sums = partial.data<T>();
  sum_chunks<T>(x, outer, count, chunk, inner, sums, T{1}, T{0});
  sum_middle<T>(sums, outer, chunks, inner, out, divisor, beta);
}

template void sum_middle(const float*, int64_t, int64_t, int64_t, float*, double, double);
template void sum_middle(const double*, int64_t, int64_t, int64_t, double*, double, double);

void sum_axes_into(Tensor& out, const Tensor& x, const ShortVector<int>& axes, double divisor,
                   double beta) {
  Shape kept = x.shape();
  unsigned reduced = 0;
  for (int axis : axes) {
    kept[axis] = 1;
    reduced |= 1u << x.shape().index(axis);
  }
  check<ShapeError>(out.shape() == kept && out.dtype() == x.dtype() && out.is_dense(),
                    "sum: ", x.shape(), " of ", x.dtype(), " into ", out.shape(), " of ",
                    out.dtype());
  if (out.numel() == 0) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    const Tensor dense = x.is_dense() ? x : x.contiguous();

    // The axes in memory order; neighbours that are both summed or both kept are merged.
    ShortVector<int> order;
    for (int i = 0; i < x.rank(); ++i)
      if (x.size(i) != 1) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const int64_t of_a = dense.strides()[a], of_b = dense.strides()[b];
      return of_a > of_b || (of_a == of_b && a < b);
    });
    struct Group {
      int64_t size;
      bool summed;
    };
    ShortVector<Group> groups;
    for (int axis : order) {
      const bool summed = reduced >> axis & 1;
      if (groups.empty() || groups.back().summed != summed) groups.push_back({1, summed});
      groups.back().size *= x.size(axis);
    }

    const auto is_summed = [](const Group& group) { return group.summed; };
    if (std::none_of(groups.begin(), groups.end(), is_summed)) {  // sums of one element each
      elementwise_accumulate<T>(
          out, beta, [d = static_cast<T>(divisor)](T s) { return s / d; }, in<T>(x));
      return;
    }

    // The sums are written directly to out if its axes are in the same memory order.
    Tensor to = Tensor::empty_ordered(kept, out.dtype(), dense.strides());
    const bool direct = has_strides(out, to.strides());
    if (direct) to = out;

    // One run of summed axes at a time, innermost first.
    Tensor from = dense;
    for (;;) {
      int64_t outer = 1, count = 1, inner = 1;
      size_t g = groups.size(), left = 0;
      for (size_t i = 0; i < groups.size(); ++i)
        if (groups[i].summed) {
          g = i;
          ++left;
        }
      for (size_t i = 0; i < groups.size(); ++i) {
        if (i < g) outer *= groups[i].size;
        if (i == g) count = groups[i].size;
        if (i > g) inner *= groups[i].size;
      }
      if (left <= 1) {
        sum_middle<T>(from.data<T>(), outer, count, inner, to.data<T>(), divisor,
                      direct ? beta : 0);
        break;
      }
      Tensor sums = Tensor::empty({outer, inner}, out.dtype());
      sum_middle<T>(std::as_const(from).data<T>(), outer, count, inner, sums.data<T>());
      from = sums;
      groups.erase(groups.begin() + static_cast<ptrdiff_t>(g));
    }
    if (!direct) accumulate_into(out, beta, to);
  });
}

}  // namespace longhand::kernels
