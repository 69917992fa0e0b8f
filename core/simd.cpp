#include "longhand/core/simd.h"

#include <cstdlib>

#include "longhand/core/error.h"

namespace longhand {
namespace {

Isa detect() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::baseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return avx512 ? Isa::avx512 : Isa::avx2;
#else
  return Isa::baseline;
#endif
}

}  // namespace

Isa machine_isa() {
  static const Isa best = detect();
  return best;
}

Isa select_isa(std::string_view requested, Isa machine) {
  if (requested.empty()) return machine;
  for (const Isa set : all_isas) {
    if (name_of(set) != requested) continue;
    check<ConfigError>(set <= machine, "LONGHAND_ISA: this CPU does not support ", requested,
                       "; expected at most ", name_of(machine));
    return set;
  }
  throw ConfigError(
      concat_message("LONGHAND_ISA: expected baseline, avx2 or avx512, got \"", requested, "\""));
}

Isa isa() {
  static const Isa selected = [] {
    const char* const requested = std::getenv("LONGHAND_ISA");
    return select_isa(requested ? requested : "", machine_isa());
  }();
  return selected;
}

std::string_view name_of(Isa isa) {
  constexpr std::string_view names[] = {"baseline", "avx2", "avx512"};  // in the order of Isa
  return names[static_cast<size_t>(isa)];
}

}  // namespace longhand
