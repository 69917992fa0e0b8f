// A sink: an additional key for all queries of a head, with score s_h and value 0. Xiao et al. 2023
// (arXiv 2309.17453); a learned s_h as in gpt-oss; s_h = 0 adds 1 to normalisers. It is joined to
// the result of the other keys, with their L:
//
//   L'_i = log(e^L_i + e^s),  o'_i = e^(L_i - L'_i) o_i
//
// Given o' and L', gradients of the other keys are the same as without a sink, and
// ds = Σ_i e^(s - L'_i) (dL'_i - do'_i·o'_i). A query without other keys keeps o = 0 and L = -inf.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/core/parallel.h"

namespace longhand::attention::tile {

/// Adds sinks (H) to out (B, N, H, D) and log_sums (B, H, N) in units of `log_e`, both row-major.
inline void add_sink(const Tensor& sink, double log_e, Tensor& out, Tensor& log_sums) {
  const int64_t B = out.size(0), N = out.size(1), H = out.size(2), D = out.size(3);
  dispatch_float(out.dtype(), [&]<class T>() {
    const Heads<T> to(out);
    const Tensor scores = sink.contiguous();
    const T* const of_heads = scores.data<T>();
    T* const logs = log_sums.data<T>();
    parallel_for_each(B * H, 1, [=](int64_t r) {
      for (int64_t i = 0; i < N; ++i) {
        T& log_sum = logs[r * N + i];
        if (log_sum == -std::numeric_limits<T>::infinity()) continue;
        const double l = static_cast<double>(log_sum) / log_e,
                     s = static_cast<double>(of_heads[r % H]), top = std::max(l, s),
                     all = top + std::log(std::exp(l - top) + std::exp(s - top));
        const T factor = static_cast<T>(std::exp(l - all));
        T* const row = to.at(r / H, i, r % H);
        for (int64_t d = 0; d < D; ++d) row[d] *= factor;
        log_sum = static_cast<T>(all * log_e);
      }
    });
  });
}

/// The gradient (H) of the sinks, given the out and log_sums of add_sink() and the gradients dout
/// with contiguous rows and dlog_sums (B, H, N), in units of e; undefined: 0.
inline Tensor sink_gradient(const Tensor& sink, double log_e, const Tensor& out,
                            const Tensor& log_sums, const Tensor& dout, const Tensor& dlog_sums) {
  const int64_t B = out.size(0), N = out.size(1), H = out.size(2), D = out.size(3);
  Tensor grad = Tensor::empty({H}, out.dtype());
  dispatch_float(out.dtype(), [&]<class T>() {
    const Heads<const T> o(out), given(dout);
    const Tensor scores = sink.contiguous();
    const T *const of_heads = scores.data<T>(), *const logs = log_sums.data<T>();
    const T* const of_logs = data_or_null<T>(dlog_sums);
    T* const to = grad.data<T>();
    parallel_for_each(H, 1, [=](int64_t h) {
      double sum = 0;
      for (int64_t b = 0; b < B; ++b)
        for (int64_t i = 0; i < N; ++i) {
          const int64_t at = (b * H + h) * N + i;
          if (logs[at] == -std::numeric_limits<T>::infinity()) continue;
          const T *const x = o.at(b, i, h), *const dx = given.at(b, i, h);
          double change = of_logs ? static_cast<double>(of_logs[at]) : 0;
          for (int64_t d = 0; d < D; ++d)
            change -= static_cast<double>(x[d]) * static_cast<double>(dx[d]);
          sum += change *
                 std::exp(static_cast<double>(of_heads[h]) - static_cast<double>(logs[at]) / log_e);
        }
      to[h] = static_cast<T>(sum);
    });
  });
  return grad;
}

}  // namespace longhand::attention::tile
