#include "longhand/attention/ops/hash_buckets.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

Hash::Hash(const Tensor& rotations, int64_t buckets)
    : buckets_(buckets), columns_(rotations.to(DType::f64).transpose(2, 3).contiguous()) {}

template <class T>
int64_t Hash::operator()(const T* x, int64_t h, int64_t r, std::vector<double>& products) const {
  if (buckets_ == 1) return 0;
  const int64_t half = buckets_ / 2, D = columns_.size(2);
  products.resize(static_cast<size_t>(half));
  double* const y = products.data();
  const double* const R = columns_.data<double>() + (h * rounds() + r) * D * half;
  simd([=] {
    constexpr int64_t run = 16;  // products that stay in registers
    const int64_t whole = half / run * run;
    for (int64_t first = 0; first < whole; first += run) {
      double sum[run] = {};
      for (int64_t d = 0; d < D; ++d)
        for (int64_t l = 0; l < run; ++l)
          sum[l] += R[d * half + first + l] * static_cast<double>(x[d]);
      std::copy_n(sum, run, y + first);
    }
    std::fill(y + whole, y + half, 0.0);
    for (int64_t d = 0; d < D; ++d)
      for (int64_t l = whole; l < half; ++l) y[l] += R[d * half + l] * static_cast<double>(x[d]);
  });
  double largest = -1;
  int64_t bucket = 0;
  for (int64_t l = 0; l < half; ++l) {
    if (std::abs(y[l]) <= largest) continue;
    largest = std::abs(y[l]);
    bucket = y[l] >= 0 ? l : half + l;
  }
  return bucket;
}

template int64_t Hash::operator()(const float*, int64_t, int64_t, std::vector<double>&) const;
template int64_t Hash::operator()(const double*, int64_t, int64_t, std::vector<double>&) const;

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
    parallel_for(B * H * rounds, 1, [&](int64_t first, int64_t end) {
      std::vector<double> products;
      for (int64_t at = first; at < end; ++at) {
        const int64_t b = at / rounds / H, h = at / rounds % H, n = real[static_cast<size_t>(b)];
        int32_t* const of = out.bucket.data<int32_t>() + at * N;
        int32_t* const begin = out.begin.data<int32_t>() + at * (buckets + 1);
        for (int64_t i = 0; i < n; ++i) {
          const T* const row = x.data<T>() + ((b * N + i) * H + h) * D;
          of[i] = static_cast<int32_t>(hash(row, h, at % rounds, products));
          ++begin[of[i] + 1];
        }
        for (int64_t c = 0; c < buckets; ++c) begin[c + 1] += begin[c];
        std::vector<int32_t> next(begin, begin + buckets);
        for (int64_t i = 0; i < n; ++i) {
          const int32_t s = next[static_cast<size_t>(of[i])]++;
          out.place.data<int32_t>()[at * N + i] = s;
          out.sorted.data<int32_t>()[at * N + s] = static_cast<int32_t>(i);
        }
      }
    });
  });
  return out;
}

}  // namespace longhand::attention
