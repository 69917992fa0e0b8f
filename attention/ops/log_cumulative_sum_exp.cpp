#include "longhand/attention/ops/log_cumulative_sum_exp.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// log x for x >= 1, written inline so that loops over it are vectorised: x = 2^n y, log y = 2
// artanh((y - 1) / (y + 1)).
inline double log_of(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const uint64_t above = (bits + 0x00095f6200000000ull) >> 52;  // n + 1 if y >= sqrt 2
  const double n = static_cast<double>(static_cast<int32_t>(above) - 1023);
  const double y = std::bit_cast<double>(bits - ((above - 1023) << 52));
  const double t = (y - 1) / (y + 1), u = t * t;
  double sum = 1.0 / 23;
  for (const double odd : {21., 19., 17., 15., 13., 11., 9., 7., 5., 3., 1.})
    sum = sum * u + 1 / odd;
  return n * std::numbers::ln2 + 2 * t * sum + (x - x);  // NaN for NaN
}

}  // namespace

Variable log_cumulative_sum_exp(const Variable& x) {
  const Tensor in = x.value().contiguous();
  const int64_t N = x.size(1), H = x.size(2), D = x.size(3), token = H * D;
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for_each(x.size(0) * H, 1, [&](int64_t head) {
      std::vector<double> scales(D), sums(D);  // the sum is e^scale sum, with sum >= 1
      std::fill(scales.begin(), scales.end(), -std::numeric_limits<double>::infinity());
      std::fill(sums.begin(), sums.end(), 0.0);
      simd([=, from = in.data<T>() + (head / H * N * H + head % H) * D,
            to = out.data<T>() + (head / H * N * H + head % H) * D, c = scales.data(),
            s = sums.data()] {
        for (int64_t at = 0; at < N * token; at += token)
#pragma GCC ivdep
          for (int64_t d = 0; d < D; ++d) {
            const double t = static_cast<double>(from[at + d]);
            const double e = math::exp(-std::abs(t - c[d]));
            s[d] = t > c[d] ? s[d] * e + 1 : s[d] + e;
            c[d] = t > c[d] ? t : c[d];
            to[at + d] = static_cast<T>(c[d] + log_of(s[d]));
          }
      });
    });
  });
  return record(
      "log_cumulative_sum_exp", out, {x},
      [in, out, N, H, D, token](const Tensor& grad_out, std::span<GradSlot> slots) {
        const Tensor dy = grad_out.contiguous();
        Tensor dx = Tensor::empty(in.shape(), in.dtype());
        dispatch_float(in.dtype(), [&]<class T>() {
          parallel_for_each(in.size(0) * H, 1, [&](int64_t head) {
            std::vector<double> sums(D);
            std::fill(sums.begin(), sums.end(), 0.0);
            const int64_t first = (head / H * N * H + head % H) * D;
            simd([=, a = in.data<T>() + first, y = out.data<T>() + first, g = dy.data<T>() + first,
                  to = dx.data<T>() + first, s = sums.data()] {
              for (int64_t at = (N - 1) * token; at >= 0; at -= token)
#pragma GCC ivdep
                for (int64_t d = 0; d < D; ++d) {
                  const T own = y[at + d], next = at == (N - 1) * token ? own : y[at + token + d];
                  s[d] = static_cast<double>(g[at + d]) +
                         static_cast<double>(math::exp(own - next)) * s[d];
                  to[at + d] =
                      static_cast<T>(static_cast<double>(math::exp(a[at + d] - own)) * s[d]);
                }
            });
          });
        });
        slots[0].take(dx);
      });
}

}  // namespace longhand::attention
