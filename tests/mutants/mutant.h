// Included first in every file of a build with mechanical mutants: see sample.pl.
#pragma once
#ifdef __cplusplus

#include <atomic>
#include <cstdio>
#include <cstdlib>

/// Whether this process runs mutant k. With MUTANT_TRACE, k is written to that file when it is first
/// reached. The names do not begin with LONGHAND_, as those of settings do, which tests of the program
/// keep from it.
inline bool longhand_mutant(int k) {
  static const int chosen = [] {
    const char* const text = std::getenv("MUTANT");
    return text ? std::atoi(text) : 0;
  }();
  static const char* const trace = std::getenv("MUTANT_TRACE");
  if (trace) {
    static std::atomic<bool> reached[100000];
    if (!reached[k].exchange(true))
      if (std::FILE* const file = std::fopen(trace, "a")) {
        std::fprintf(file, "%d\n", k);
        std::fclose(file);
      }
  }
  return k == chosen;
}

#endif
