// What benchmarks are measured against: the products of OpenBLAS in this process, on all threads.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "longhand/core/gemm.h"
#include "longhand/core/parallel.h"
#include "longhand/core/random.h"

namespace longhand::bench {

inline Tensor normal(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::empty(shape);
  fill_normal(t, Generator(seed));
  return t;
}

template <class F>
double seconds(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The highest rate seen so far of f32 products of 1024 x 1024 matrices, one on each thread, in
/// FLOP/s. Every call tries some more: the machine may have been busy before.
inline double sgemm_peak() {
  constexpr int64_t n = 1024;
  static const int count = threads();
  static std::vector<Tensor> a, b, c;
  static double best = std::numeric_limits<double>::infinity();
  while (static_cast<int>(a.size()) < count) {
    a.push_back(normal({n, n}, 1));
    b.push_back(normal({n, n}, 2));
    c.push_back(normal({n, n}, 3));
  }
  for (int round = 0; round < 10; ++round)
    best = std::min(best, seconds([&] {
                      parallel_for(count, 1, [&](int64_t i, int64_t) {
                        gemm<float>(Trans::no, Trans::no, 1,
                                    {std::as_const(a[i]).data<float>(), n, n, n},
                                    {std::as_const(b[i]).data<float>(), n, n, n}, 0,
                                    {c[i].data<float>(), n, n, n});
                      });
                    }));
  return count * 2.0 * n * n * n / best;
}

/// Counters: the rate of `operations` in `best` seconds, and its share of the peak.
inline void report(benchmark::State& state, double operations, double best) {
  const double peak = sgemm_peak();
  state.counters["GFLOP/s"] = 1e-9 * operations / best;
  state.counters["sgemm"] = 1e-9 * peak;
  state.counters["share"] = operations / best / peak;
}

}  // namespace longhand::bench
