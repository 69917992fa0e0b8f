// Exercise 2: three cups through 1,000 random permutations, by two reflections per token.
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/core/random.h"

using namespace longhand;

int main() {
  const int64_t tokens = 1000, steps = 2 * tokens;
  Tensor k = Tensor::zeros({1, steps, 1, 3}, DType::f64);
  Tensor beta = Tensor::zeros({1, steps, 1}, DType::f64);
  Tensor cups = Tensor::from<double>({1, 2, 3}, {1, 1, 3, 1});  // the state: the cup at each place
  RandomStream random(Generator(7));
  std::vector<int> expected{1, 2, 3};
  for (int64_t t = 0; t < tokens; ++t) {
    // Swaps of places 0 and 1, and of 1 and 2, or neither: with both it is a rotation of all three.
    for (int64_t a = 0; a < 2; ++a) {
      if (random.below(2) == 0) continue;  // β = 0 leaves the state as it is
      const int64_t step = 2 * t + a;
      k.data<double>()[3 * step + a] = std::sqrt(0.5);
      k.data<double>()[3 * step + a + 1] = -std::sqrt(0.5);
      beta.data<double>()[step] = 2;
      std::swap(expected[a], expected[a + 1]);
    }
  }
  const Variable v(Tensor::zeros({1, steps, 1, 1}, DType::f64));
  const attention::DeltaResult result =
      attention::delta_scan({Variable(k), Variable(k), v, Variable(beta)}, Variable(cups));
  const std::vector<double> state = result.state.value().to_vector<double>();
  double worst = 0;
  for (int64_t place = 0; place < 3; ++place)
    worst = std::max(worst, std::abs(state[place] - expected[place]));
  std::printf("after 1,000 permutations the cups are at %d %d %d: %s\n", expected[0], expected[1],
              expected[2], worst < 1e-9 ? "the state agrees" : "the state is wrong");
  return worst < 1e-9 ? 0 : 1;
}
