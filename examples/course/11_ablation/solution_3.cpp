// Exercise 3: two models on the same 1,000 examples. Pairing finds small differences, and shows what a tie is.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "longhand/core/statistics.h"

using namespace longhand;

// The interval of the difference b - a, if b alone is right on some examples and a alone on others.
Estimate difference(int only_b, int only_a) {
  std::vector<double> differences(1000, 0);
  std::fill_n(differences.begin(), only_b, 1);
  std::fill_n(differences.begin() + only_b, only_a, -1);
  return paired_difference(differences, std::vector<double>(1000, 1));
}

int main() {
  const Estimate a = proportion(900, 1000), b = proportion(920, 1000);
  const Estimate few = difference(25, 5), many = difference(70, 50), tie = difference(2, 2);
  std::printf("a: %.3f to %.3f, b: %.3f to %.3f\n", a.low, a.high, b.low, b.high);
  std::printf("b - a if they differ on 30 examples: %.3f to %.3f\n", few.low, few.high);
  std::printf("b - a if they differ on 120 examples: %.3f to %.3f\n", many.low, many.high);
  std::printf("b - a if each is right on two that the other misses: %.3f to %.3f\n", tie.low,
              tie.high);
  const bool overlap = b.low<a.high, found = few.low> 0, not_found = many.low < 0;
  const bool equal = tie.low > -0.01 && tie.high < 0.01;  // up to 1 %, a margin chosen beforehand
  return overlap && found && not_found && equal ? 0 : 1;
}
