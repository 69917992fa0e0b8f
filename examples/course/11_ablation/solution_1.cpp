// Exercise 1: twenty variants that are all equal to the baseline, and how often one of them looks different.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "longhand/core/random.h"
#include "longhand/core/statistics.h"

using namespace longhand;

int main() {
  RandomStream random{Generator(1)};
  const int sweeps = 1000;
  int found = 0, corrected = 0;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    std::vector<double> baseline(5), variant(5), p;
    for (double& x : baseline) x = 0.8 + 0.02 * random.normal();
    for (int v = 0; v < 20; ++v) {
      for (double& x : variant) x = 0.8 + 0.02 * random.normal();
      p.push_back(paired_test(variant, baseline).p);
    }
    found += *std::ranges::min_element(p) < 0.05;
    p = holm(p);
    corrected += *std::ranges::min_element(p) < 0.05;
  }
  const double any = found / double(sweeps), after = corrected / double(sweeps);
  std::printf("sweeps with a difference: %.2f; after Holm's correction: %.2f\n", any, after);
  std::printf("independent tests would give %.2f\n", 1 - std::pow(0.95, 20));
  return any > 0.3 && any < 0.64 && after < 0.07 ? 0 : 1;
}
