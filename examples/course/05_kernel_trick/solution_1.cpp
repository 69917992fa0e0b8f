// Exercise 1: with cosines and sines, normalisers may be negative; with exponentials never.
#include <cmath>
#include <cstdio>

#include "longhand/attention/features/random_features.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

int main() {
  const int64_t N = 128, D = 16, m = 64;
  bool right = true;
  for (const double size : {1, 2, 4}) {
    Tensor q = Tensor::empty({N, D}, DType::f64), k = Tensor::empty({N, D}, DType::f64);
    const double std = size / std::pow(double(D), 0.75);  // norm / sqrt(D), times D^(-1/4)
    fill_normal(q, Generator(5).fork("q"), 0, std);
    fill_normal(k, Generator(5).fork("k"), 0, std);
    const Variable W(attention::draw_gaussian(Generator(1), m, D));
    const auto normalisers = [&](bool positive) {
      const auto features = [&](const Tensor& x) {
        const Variable u = linear(Variable(x), W), h = sum(square(Variable(x)), {1}, true) / 2;
        return positive ? exp(u - h) : exp(h) * cos_sin(u);
      };
      const Variable sums = sum(features(k), {0}, true);
      return matmul(features(q), transpose(sums, 0, 1)).value().to_vector<double>();
    };
    int negative_waves = 0, negative = 0;
    for (const double z : normalisers(false)) negative_waves += z < 0;
    for (const double z : normalisers(true)) negative += z < 0;
    std::printf("norm %.0f: %d of 128 normalisers are negative with waves, %d with exponentials\n",
                size, negative_waves, negative);
    right = right && negative == 0 && (size < 4 ? negative_waves < 5 : negative_waves > 5);
  }
  return right ? 0 : 1;
}
