#include "longhand/attention/ops/hash_buckets.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

namespace {

constexpr int64_t width = 8;  // columns in a vector

}  // namespace

Hash::Hash(const Tensor& rotations, int64_t buckets)
    : buckets_(buckets),
      columns_(Tensor::zeros({rotations.size(0), rotations.size(1), rotations.size(3),
                              (rotations.size(2) + width - 1) / width * width},
                             DType::f64)) {
  copy_into(columns_.slice(3, 0, rotations.size(2)), rotations.to(DType::f64).transpose(2, 3));
}

template <class T>
void Hash::operator()(const T* x, int64_t step, int64_t count, int64_t h, int64_t r,
                      int32_t* to) const {
  const int64_t half = buckets_ / 2, D = columns_.size(2), columns = columns_.size(3);
  simd([=, R = columns_.data<double>() + (h * rounds() + r) * D * columns] {
    constexpr int64_t together = 4;  // rows whose products stay in registers
    for (int64_t first = 0; first < count; first += together) {
      const T* row[together];
      double largest[together];
      int64_t best[together] = {};
      for (int64_t n = 0; n < together; ++n) {
        row[n] = x + std::min(first + n, count - 1) * step;
        largest[n] = -1;
      }
      for (int64_t l = 0; l < half; l += width) {
        kernels::Eight<double> y[together] = {};
        for (int64_t d = 0; d < D; ++d) {
          const auto of =
              kernels::eight_of<double>(d * columns + l, [R](int64_t i) { return R[i]; });
          for (int64_t n = 0; n < together; ++n) y[n] += of * static_cast<double>(row[n][d]);
        }
        for (int64_t n = 0; n < together; ++n)
          for (int64_t c = 0; c < std::min(width, half - l); ++c) {
            const double product = y[n][c], size = std::abs(product);
            const bool larger = !(size <= largest[n]);
            largest[n] = larger ? size : largest[n];
            best[n] = larger ? (product >= 0 ? l + c : half + l + c) : best[n];
          }
      }
      for (int64_t n = 0; n < std::min(together, count - first); ++n)
        to[first + n] = static_cast<int32_t>(best[n]);
    }
  });
}

template void Hash::operator()(const float*, int64_t, int64_t, int64_t, int64_t, int32_t*) const;
template void Hash::operator()(const double*, int64_t, int64_t, int64_t, int64_t, int32_t*) const;

Buckets hash_buckets(const Tensor& q, const Hash& hash, int64_t window, bool causal,
                     const Tensor& lengths) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), rounds = hash.rounds(),
                buckets = hash.buckets();
  const Shape tokens{B, H, rounds, N};
  Buckets out{.bucket = Tensor::empty(tokens, DType::i32),
              .sorted = Tensor::empty(tokens, DType::i32),
              .place = Tensor::empty(tokens, DType::i32),
              .begin = Tensor::zeros({B, H, rounds, buckets + 1}, DType::i32),
              .window = window,
              .causal = causal};
  const Tensor x = q.contiguous();
  const std::vector<int32_t> real = tile::lengths_or("hash_buckets: lengths", lengths, B, N);
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for_each(B * H * rounds, 1, [&](int64_t at) {
      const int64_t b = at / rounds / H, h = at / rounds % H, n = real[static_cast<size_t>(b)];
      int32_t* const of = out.bucket.data<int32_t>() + at * N;
      int32_t* const begin = out.begin.data<int32_t>() + at * (buckets + 1);
      hash(x.data<T>() + (b * N * H + h) * D, H * D, n, h, at % rounds, of);
      for (int64_t i = 0; i < n; ++i) ++begin[of[i] + 1];
      for (int64_t c = 0; c < buckets; ++c) begin[c + 1] += begin[c];
      std::vector<int32_t> next(begin, begin + buckets);
      for (int64_t i = 0; i < n; ++i) {
        const int32_t s = next[static_cast<size_t>(of[i])]++;
        out.place.data<int32_t>()[at * N + i] = s;
        out.sorted.data<int32_t>()[at * N + s] = static_cast<int32_t>(i);
      }
    });
  });
  return out;
}

}  // namespace longhand::attention
