// Exercise 3: the product of C transitions I - β k kᵀ is I - Kᵀ B W, with W = (I + L)⁻¹ K.
#include <cmath>
#include <cstdio>

#include "longhand/core/linalg.h"
#include "longhand/core/random.h"

using namespace longhand;

int main() {
  const int C = 40, D = 8;
  RandomStream random(Generator(7));
  double k[C][D], beta[C], W[C][D], A[D][D] = {};
  for (int i = 0; i < C; ++i) {
    double square = 0;
    for (double& x : k[i]) {
      x = random.normal();
      square += x * x;
    }
    for (double& x : k[i]) x /= std::sqrt(square);
    beta[i] = 2 * random.uniform();
  }
  // One after another: A <- (I - β k kᵀ) A, from A = I.
  for (int d = 0; d < D; ++d) A[d][d] = 1;
  for (int i = 0; i < C; ++i)
    for (int e = 0; e < D; ++e) {
      double read = 0;
      for (int d = 0; d < D; ++d) read += k[i][d] * A[d][e];
      for (int d = 0; d < D; ++d) A[d][e] -= beta[i] * k[i][d] * read;
    }
  // Row i of W is what k_i reads from the product of the transitions before it: k_i - Σ_(j<i) β_j (k_i·k_j) W_j.
  for (int i = 0; i < C; ++i) {
    for (int d = 0; d < D; ++d) W[i][d] = k[i][d];
    for (int j = 0; j < i; ++j) {
      double L = 0;
      for (int d = 0; d < D; ++d) L += beta[j] * k[i][d] * k[j][d];
      for (int d = 0; d < D; ++d) W[i][d] -= L * W[j][d];
    }
  }
  double worst = 0;
  Tensor product = Tensor::empty({D, D}, DType::f64);
  for (int d = 0; d < D; ++d)
    for (int e = 0; e < D; ++e) {
      double sum = d == e;
      for (int i = 0; i < C; ++i) sum -= k[i][d] * beta[i] * W[i][e];
      product.data<double>()[d * D + e] = sum;
      worst = std::max(worst, std::abs(sum - A[d][e]));
    }
  const double largest = svd(product).s.at({0});
  std::printf("the two forms %s; the largest singular value of the product is %s\n",
              worst < 1e-12 ? "agree" : "differ", largest < 1 + 1e-12 ? "at most 1" : "above 1");
  return worst < 1e-12 && largest < 1 + 1e-12 ? 0 : 1;
}
