// Exercise 3: for given mixtures of keys, the best mixtures of values are a least-squares problem.
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/linalg.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;

int main() {
  const int64_t N = 128, D = 16;
  bool right = true;
  for (const double size : {2, 6}) {
    const Variable x(attention::analysis::random_head({N, D, size, 0.9}, Generator(8)).k);
    const Variable P = reshape(definitions::softmax(x, x, definitions::visible(N, N, {})), {N, N});
    const auto error = [&](const Variable& W) {
      return std::sqrt(sum(square(W - P)).value().item() / sum(square(P)).value().item());
    };
    for (const int64_t m : {8, 32}) {
      std::vector<double> means(m * N);
      for (int64_t j = 0; j < N; ++j) means[j * m / N * N + j] = static_cast<double>(m) / N;
      const Variable E(Tensor::from(means, {m, N}));
      // A = softmax(Q (E K)ᵀ / √D); |A F - P| is least for F = A⁺ P.
      const Variable X = reshape(x, {N, D});
      const Variable A = softmax(matmul(X, transpose(matmul(E, X), 0, 1), 1 / std::sqrt(D)));
      const double by_means = error(matmul(A, E)), best = error(matmul(A, matmul(pinv(A), P)));
      const Svd of_P = svd(P.value());
      double left_out = 0;
      for (int64_t i = m; i < N; ++i) left_out += std::pow(of_P.s.at({i}), 2);
      const double bound = std::sqrt(left_out / sum(square(P)).value().item());
      std::printf(
          "norm %.0f, %2d mixtures: means err by %.3f, the best F by %.3f, rank %d by %.3f\n", size,
          static_cast<int>(m), by_means, best, static_cast<int>(m), bound);
      right = right && bound < best && best < by_means;
    }
  }
  return right ? 0 : 1;
}
