// Prefetching of rows of memory that the hardware does not predict.
#pragma once

#include <cstdint>

namespace longhand::kernels {

/// Prefetches the cache lines of `count` elements. They need not exist: a prefetch does not fault.
/// Inlined, because GCC removes calls of functions that only prefetch.
template <class T>
[[gnu::always_inline]] inline void prefetch(const T* x, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / int64_t{sizeof(T)}) __builtin_prefetch(x + i);
}

}  // namespace longhand::kernels
