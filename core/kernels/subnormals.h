// Subnormal numbers as zeros.
#pragma once

#if defined(__x86_64__)
#include <pmmintrin.h>
#endif

namespace longhand::kernels {

/// While this exists, operations on its thread treat subnormal operands and results as zeros (on
/// x86): products with subnormal numbers take many times as long on some CPUs, and decays produce
/// many of them. For use within one task of a loop, which must not start another loop meanwhile:
/// its thread could take tasks of other loops.
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
