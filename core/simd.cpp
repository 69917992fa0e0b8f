#include "longhand/core/simd.h"

#include <algorithm>
#include <cstdlib>

namespace longhand {
namespace {

Isa detect() {
  Isa best = Isa::baseline;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) best = Isa::avx2;
  if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    best = Isa::avx512;
#endif
  if (const char* wanted = std::getenv("LONGHAND_ISA"))
    for (Isa lower : {Isa::baseline, Isa::avx2})
      if (name_of(lower) == wanted) best = std::min(best, lower);
  return best;
}

}  // namespace

Isa isa() {
  static const Isa chosen = detect();
  return chosen;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "?";
}

}  // namespace longhand
