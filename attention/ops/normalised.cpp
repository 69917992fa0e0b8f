#include "longhand/attention/ops/normalised.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// (B, N, H, 1) u8: 1 where f holds for the normaliser of sums (B, N, H, D + 1); undefined if none.
template <class F>
Tensor where_normaliser(const Tensor& sums, F f) {
  const Tensor den = sums.slice(3, -1, sums.size(3)).contiguous();
  Tensor out = Tensor::empty(den.shape(), DType::u8);
  bool any = false;
  if (is_dry()) return {};
  dispatch_float(den.dtype(), [&]<class T>() {
    const T* const d = den.data<T>();
    uint8_t* const o = out.data<uint8_t>();
    for (int64_t i = 0; i < den.numel(); ++i) any |= o[i] = f(d[i]);
  });
  return any ? out : Tensor();
}

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

Variable normalised(const Variable& sums, const Guard& guard) {
  const int64_t D = sums.size(3) - 1;
  const double eps = guard.eps;
  Variable den = slice(sums, 3, D, D + 1);
  const auto replace = [&](const Variable& by, auto f) {
    if (const Tensor at = where_normaliser(sums.value(), f); at.defined()) den = where(at, by, den);
  };
  const auto constant = [&](double x) { return Variable(Tensor::scalar(x, sums.dtype())); };
  if (guard.kind == Guard::Kind::add)
    replace(den + 2 * eps, [eps](auto d) { return std::abs(d) <= eps; });
  else if (guard.kind == Guard::Kind::clamp)
    replace(constant(eps), [eps](auto d) { return d < eps; });
  else
    replace(constant(std::numeric_limits<double>::infinity()),
            [&guard]<class T>(T d) { return std::abs(d) < guard.floor<T>(); });
  return slice(sums, 3, 0, D) / den;
}

int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths,
                                const Guard& guard) {
  const auto real = tile::lengths_or("nonpositive_normalisers: lengths", lengths,
                                     normalisers.size(0), normalisers.size(1));
  int64_t count = 0;
  for (int64_t b = 0; b < normalisers.size(0); ++b) {
    const Tensor dens = normalisers.select(0, b).slice(0, 0, real[b]).contiguous();
    if (is_dry()) continue;
    dispatch_float(dens.dtype(), [&]<class T>() {
      const T* const d = dens.data<T>();
      count += std::count_if(d, d + dens.numel(),
                             [least = guard.reliable<T>()](T den) { return den < least; });
    });
  }
  return count;
}

Tensor running_max(const Tensor& x) {
  Tensor out = x.contiguous().clone();
  const int64_t N = x.size(1), H = x.size(2);
  if (is_dry()) return out;
  dispatch_float(x.dtype(), [&]<class T>() {
    T* p = out.data<T>();
    for (int64_t b = 0; b < x.size(0); ++b, p += N * H)
      for (int64_t i = H; i < N * H; ++i) p[i] = std::max(p[i], p[i - H]);
  });
  return out;
}

Variable log_decay_of_scale(const Variable& x) {
  const int64_t N = x.size(1);
  if (N == 1) return x * 0.0;
  const Variable steps = slice(x, 1, 0, N - 1) - slice(x, 1, 1, N);
  Shape first = x.shape();
  first[1] = 1;
  return concat({Variable(Tensor::zeros(first, x.dtype())), steps}, 1);
}

Variable log_cumulative_sum_exp(const Variable& x) {
  const Tensor in = x.value().contiguous();
  const int64_t N = x.size(1), H = x.size(2), D = x.size(3), token = H * D;
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for(x.size(0) * H, 1, [&](int64_t begin, int64_t end) {
      std::vector<double> scales(D), sums(D);  // the sum is e^scale sum, with sum >= 1
      for (int64_t head = begin; head < end; ++head) {
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
      }
    });
  });
  return record(
      "log_cumulative_sum_exp", out, {x},
      [in, out, N, H, D, token](const Tensor& grad_out, std::span<GradSlot> slots) {
        const Tensor dy = grad_out.contiguous();
        Tensor dx = Tensor::empty(in.shape(), in.dtype());
        dispatch_float(in.dtype(), [&]<class T>() {
          parallel_for(in.size(0) * H, 1, [&](int64_t begin, int64_t end) {
            std::vector<double> sums(D);
            for (int64_t head = begin; head < end; ++head) {
              std::fill(sums.begin(), sums.end(), 0.0);
              const int64_t first = (head / H * N * H + head % H) * D;
              simd([=, a = in.data<T>() + first, y = out.data<T>() + first,
                    g = dy.data<T>() + first, to = dx.data<T>() + first, s = sums.data()] {
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
            }
          });
        });
        slots[0].take(dx);
      });
}

}  // namespace longhand::attention
