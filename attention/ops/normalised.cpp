#include "longhand/attention/ops/normalised.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

constexpr int64_t grain = 1 << 14;  // numbers of a task

// (B, N, H, 1) u8: 1 where f holds for the normaliser of sums (B, N, H, D + 1); undefined if none.
template <class F>
Tensor where_normaliser(const Tensor& sums, F f) {
  const Tensor den = sums.slice(3, -1, sums.size(3)).contiguous();
  Tensor out = Tensor::empty(den.shape(), DType::u8);
  int64_t found = 0;
  dispatch_float(den.dtype(), [&]<class T>() {
    const T* const d = den.data<T>();
    uint8_t* const o = out.data<uint8_t>();
    found = parallel_sum<int64_t>(den.numel(), grain, [=](int64_t begin, int64_t end) {
      int64_t n = 0;
      for (int64_t i = begin; i < end; ++i) n += o[i] = f(d[i]);
      return n;
    });
  });
  return found ? out : Tensor();
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
    dispatch_float(dens.dtype(), [&]<class T>() {
      count += parallel_sum<int64_t>(
          dens.numel(), grain,
          [d = dens.data<T>(), least = guard.reliable<T>()](int64_t begin, int64_t end) {
            return std::count_if(d + begin, d + end, [=](T den) { return den < least; });
          });
    });
  }
  return count;
}

Tensor running_max(const Tensor& x) {
  Tensor out = x.contiguous().clone();
  const int64_t N = x.size(1), H = x.size(2);
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for(x.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        T* const p = out.data<T>() + b * N * H;
        for (int64_t i = H; i < N * H; ++i) p[i] = std::max(p[i], p[i - H]);
      }
    });
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

}  // namespace longhand::attention
