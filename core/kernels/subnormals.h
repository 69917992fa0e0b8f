// Subnormal numbers as zeros.
#pragma once

#if defined(__x86_64__)
#include <pmmintrin.h>
#endif

namespace longhand::kernels {

/// While this exists, operations of its thread take subnormal operands as zeros and return zeros for subnormal
/// results (on x86): products with subnormal numbers take many times as long on some CPUs, and decays
/// give many of them. For the task of a loop: one may not begin another loop meanwhile, since its thread
/// could take tasks of others.
class SubnormalsAsZeros {
 public:
#if defined(__x86_64__)
  SubnormalsAsZeros() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
  }
  ~SubnormalsAsZeros() { _mm_setcsr(before_); }
#else
  SubnormalsAsZeros() {}
#endif
  SubnormalsAsZeros(const SubnormalsAsZeros&) = delete;
  SubnormalsAsZeros& operator=(const SubnormalsAsZeros&) = delete;

#if defined(__x86_64__)
 private:
  const unsigned before_;
#endif
};

}  // namespace longhand::kernels
