// Exercise 2: orthogonal rows of the same distribution have smaller errors than independent ones.
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/attention/features/random_features.h"

using namespace longhand;

int main() {
  const int64_t D = 16;
  const uint64_t draws = 4000;
  std::vector<double> x(D), y(D);  // of norm 0.7, at an angle of 60 degrees
  x[0] = 0.7, y[0] = 0.7 * 0.5, y[1] = 0.7 * std::sqrt(0.75);
  const double kernel = std::exp(0.49 * 0.5);
  double mean[2] = {}, mse[2] = {};
  for (uint64_t draw = 0; draw < draws; ++draw)
    for (const int orthogonal : {0, 1}) {
      const Tensor W = orthogonal ? attention::draw_orthogonal(Generator(draw), D, D)
                                  : attention::draw_gaussian(Generator(draw), D, D);
      double estimate = 0;
      for (int64_t l = 0; l < D; ++l) {
        double u = 0;
        for (int64_t d = 0; d < D; ++d) u += W.data<double>()[l * D + d] * (x[d] + y[d]);
        estimate += std::exp(u - 0.49) / double(D);
      }
      mean[orthogonal] += estimate / double(draws);
      mse[orthogonal] += std::pow(estimate - kernel, 2) / double(draws);
    }
  std::printf("kernel %.3f; means %.2f and %.2f; orthogonal rows have %.1f of the squared error\n",
              kernel, mean[0], mean[1], mse[1] / mse[0]);
  const bool right = mse[1] < 0.95 * mse[0] && std::abs(mean[0] - kernel) < 0.05 &&
                     std::abs(mean[1] - kernel) < 0.05;
  return right ? 0 : 1;
}
