// Exercise 2: I/2 + 11ᵀ/(2 N) is neither sparse nor of low rank, but the sum of one matrix of each kind.
#include <cmath>
#include <cstdio>

#include "longhand/core/linalg.h"

using namespace longhand;

int main() {
  const int64_t N = 128, budget = 16;
  Tensor P = Tensor::full({N, N}, 0.5 / N, DType::f64);
  for (int64_t i = 0; i < N; ++i) P.data<double>()[i * N + i] += 0.5;
  // Singular values: 1 for the vector of ones, 1/2 for all vectors that are orthogonal to it.
  double rank = 0, squares = 0;
  const std::vector<double> s = svd(P).s.to_vector<double>();
  for (int64_t i = 0; i < N; ++i) {
    squares += s[i] * s[i];
    if (i >= budget) rank += s[i] * s[i];
  }
  const double by_formula = (N - budget) * 0.25 / (1 + (N - 1) * 0.25);
  // Sparse: the diagonal and 15 others are kept in each row.
  const double entry = 0.5 / N, sparse = N * (N - budget) * entry * entry / squares;
  const double lost = (N - budget) * entry;
  std::printf("rank 16 errs by %.2f; 16 keys by %.2f, and lose %.0f %% of the weight of each row\n",
              std::sqrt(rank / squares), std::sqrt(sparse), 100 * lost);
  // One key per query and rank 1: nothing is left.
  for (int64_t i = 0; i < N; ++i) P.data<double>()[i * N + i] -= 0.5;
  const double left = svd(P).s.at({1});
  std::printf("without its diagonal it is of rank %s\n", left < 1e-12 ? "1" : "2 or more");
  return std::abs(rank / squares - by_formula) < 1e-12 && left < 1e-12 ? 0 : 1;
}
