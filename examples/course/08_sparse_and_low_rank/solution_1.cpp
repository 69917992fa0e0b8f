// Exercise 1: of rows with two weights that add up to 1, top-k is nearest in the L1 norm, but not in the Frobenius norm.
#include <algorithm>
#include <cmath>
#include <cstdio>

int main() {
  const double p[] = {0.5, 0.2, 0.15, 0.1, 0.05};
  struct Errors {
    double l1, squared;
  };
  // Of the row with the weight w at i and 1 - w at j.
  const auto errors = [&](int i, int j, double w) {
    Errors e{};
    for (int l = 0; l < 5; ++l) {
      const double difference = (l == i ? w : l == j ? 1 - w : 0) - p[l];
      e.l1 += std::abs(difference);
      e.squared += difference * difference;
    }
    return e;
  };
  Errors least{1e9, 1e9};
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 5; ++j)
      for (int w = 0; w <= 1000 && i != j; ++w) {
        const Errors e = errors(i, j, w / 1000.0);
        least = {std::min(least.l1, e.l1), std::min(least.squared, e.squared)};
      }
  const Errors topk = errors(0, 1, 0.5 / 0.7), shared = errors(0, 1, 0.5 + 0.15);
  std::printf("top-k: L1 %.3f, squared %.3f; least of all: L1 %.3f, squared %.3f\n", topk.l1,
              topk.squared, least.l1, least.squared);
  const double outside = 0.15 + 0.1 + 0.05;
  const bool right = std::abs(topk.l1 - 2 * outside) < 1e-12 && least.l1 > topk.l1 - 1e-9 &&
                     std::abs(shared.squared - least.squared) < 1e-9 &&
                     shared.squared < topk.squared;
  return right ? 0 : 1;
}
