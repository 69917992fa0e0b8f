// What benchmarks are measured against: the products of OpenBLAS in this process, on all threads.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
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

/// Alternates measured passes with products of OpenBLAS, so that changes in the speed of a shared
/// machine affect both in the same way.
class Turns {
 public:
  /// A pass took so long.
  void pass(double time) {
    passes_.push_back(time);
    since_ += time;
    if (since_ < 0.2) return;
    products_.push_back(product_seconds(since_ / 4));
    since_ = 0;
  }

  /// Counters: the median rates of `operations` a pass and of sgemm, and the share of the latter.
  void report(benchmark::State& state, double operations) {
    if (products_.empty()) products_.push_back(product_seconds(0));
    const double rate = operations / median(passes_);
    const double sgemm = threads() * 2.0 * n * n * n / median(products_);
    state.counters["GFLOP/s"] = 1e-9 * rate;
    state.counters["sgemm"] = 1e-9 * sgemm;
    state.counters["share"] = rate / sgemm;
  }

 private:
  static constexpr int64_t n = 1024;

  static double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
    return x[x.size() / 2];
  }

  /// Mean seconds of f32 products of n x n matrices, one on each thread, for so long.
  static double product_seconds(double at_least) {
    static std::vector<Tensor> a, b, c;
    while (static_cast<int>(a.size()) < threads()) {
      a.push_back(normal({n, n}, 1));
      b.push_back(normal({n, n}, 2));
      c.push_back(normal({n, n}, 3));
    }
    double total = 0;
    for (int calls = 1;; ++calls) {
      total += seconds([] {
        parallel_for(threads(), 1, [](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            gemm<float>(Trans::no, Trans::no, 1, {std::as_const(a[i]).data<float>(), n, n, n},
                        {std::as_const(b[i]).data<float>(), n, n, n}, 0,
                        {c[i].data<float>(), n, n, n});
        });
      });
      if (total >= at_least) return total / calls;
    }
  }

  std::vector<double> passes_, products_;
  double since_ = 0;
};

}  // namespace longhand::bench
