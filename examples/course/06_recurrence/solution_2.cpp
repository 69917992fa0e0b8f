// Exercise 2: e^(G_i - G_j) as a product of e^(G_i) and e^(-G_j) overflows in float; within a chunk it does not.
#include <cmath>
#include <cstdio>

// The largest relative error of e^(G_i - G_j), j <= i, as a product of two factors relative to the first token of
// the chunk, in float. All gates are e^g.
double worst_error(float g, int chunk) {
  double worst = 0;
  for (int i = 0; i < chunk; ++i)
    for (int j = 0; j <= i; ++j) {
      const float product =
          std::exp(g * static_cast<float>(i)) * std::exp(-g * static_cast<float>(j));
      const double exact = std::exp(static_cast<double>(g) * (i - j));
      const double error = std::abs(product / exact - 1);
      worst = error <= worst ? worst : error;  // NaN and infinity are kept
    }
  return worst;
}

int main() {
  const float g = -1.5f;
  int largest = 1;
  while (worst_error(g, largest + 1) < 1e-4) ++largest;
  std::printf("with g = -1.5, chunks of up to %d tokens are precise\n", largest);
  // e^(1.5 j) exceeds the largest float, e^88.72, from j = 60 on.
  const bool right = largest == 60 && !std::isfinite(worst_error(g, 256));
  return right ? 0 : 1;
}
