// Vector instruction sets, selected at run time: one source compiled for three sets.
#pragma once

#include <string_view>

namespace longhand {

/// Each set includes those before it.
enum class Isa { baseline, avx2, avx512 };
inline constexpr Isa all_isas[] = {Isa::baseline, Isa::avx2, Isa::avx512};

/// The best set this CPU has.
Isa machine_isa();

/// The set in use: the best one, or the one named by the environment variable LONGHAND_ISA
/// (baseline, avx2 or avx512), which is read once. Throws ConfigError if LONGHAND_ISA is not the
/// name of a set, or names one that this CPU does not support.
Isa isa();

/// The result of isa() if LONGHAND_ISA is `requested` (empty: not set) on a CPU whose best set is
/// `machine`.
Isa select_isa(std::string_view requested, Isa machine);

std::string_view name_of(Isa isa);

namespace detail {
#if defined(__x86_64__) && defined(__OPTIMIZE__)
template <class F>
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"), gnu::flatten, gnu::noinline]] void
run_avx512(F& f) {
  f();
}
template <class F>
[[gnu::target("avx2,fma"), gnu::flatten, gnu::noinline]] void run_avx2(F& f) {
  f();
}
#endif
}  // namespace detail

/// Calls kernel(), a loop over memory, compiled for the instruction set in use: everything it
/// calls is inlined into one function per set, where the compiler vectorises it. Keep threads,
/// allocation and exceptions outside.
template <class F>
void simd(F&& kernel) {
#if defined(__x86_64__) && defined(__OPTIMIZE__)
  switch (isa()) {
    case Isa::avx512:
      return detail::run_avx512(kernel);
    case Isa::avx2:
      return detail::run_avx2(kernel);
    case Isa::baseline:
      break;
  }
#endif
  kernel();
}

}  // namespace longhand
