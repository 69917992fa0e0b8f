// MultiplyAdds: counts the work of matrix products, to test the work that is reported.
#pragma once

#include <atomic>
#include <cstdint>

namespace longhand {

/// Counts the multiply-adds of gemm() and kernels::gemm_tile(), and thus of all matrix products, on
/// all threads from its construction on. Without such an object, a product only checks whether
/// there is one. Throws Error if there is one already.
class MultiplyAdds {
 public:
  MultiplyAdds();
  ~MultiplyAdds();
  MultiplyAdds(const MultiplyAdds&) = delete;
  MultiplyAdds& operator=(const MultiplyAdds&) = delete;

  /// The number so far. Products that another thread is computing may be missing.
  int64_t count() const;
};

namespace detail {
inline std::atomic<bool> counts_multiply_adds{false};
inline std::atomic<int64_t> multiply_adds{0};
}  // namespace detail

/// Called by products of (m, k) and (k, n).
inline void count_multiply_adds(int64_t m, int64_t n, int64_t k) {
  if (detail::counts_multiply_adds.load(std::memory_order_relaxed)) [[unlikely]]
    detail::multiply_adds.fetch_add(m * n * k, std::memory_order_relaxed);
}

}  // namespace longhand
